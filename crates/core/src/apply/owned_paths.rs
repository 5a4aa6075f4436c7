//! What on a disk is Machinist's doing, and what was there before: everything that `machinist leave` takes back.
//! Called by `machinist managed`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::ApplyError;
use super::fs_node::FsNode;
use super::managed_paths;
use super::original_names::original_path;
use super::overlay::TreeOverlay;
use super::tree::FsTree;
use super::{HostDefaults, baseline, derived_files, originals};
use crate::ignition::schema::Config;

/// The file of a config from which others are derived.
const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";

/// A path that Machinist has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPath {
    /// The path.
    pub path: String,
    /// What of the config is responsible: a path, a unit or `unit/drop-in`; `None` if the current config does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// What was there before.
    pub before: PathBefore,
}

/// What was at a path before Machinist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "was", rename_all = "camelCase")]
pub enum PathBefore {
    /// Nothing.
    Nothing,
    /// A file, which is kept.
    File {
        /// Where.
        kept: String,
    },
    /// A link.
    Link {
        /// Where it pointed.
        target: String,
    },
    /// The same, with other permissions or another owner.
    Permissions {
        /// The permissions.
        mode: u32,
    },
}

/// Lists what a config and its predecessors have written, by path.
///
/// # Errors
/// The tree cannot be read.
pub fn owned_paths(
    config: &Config,
    tree: &dyn FsTree,
    defaults: HostDefaults,
) -> Result<Vec<OwnedPath>, ApplyError> {
    let view = &mut TreeOverlay::new(tree, defaults);
    let mut items: BTreeMap<String, Option<String>> =
        originals::taken_over_paths(view)?.into_iter().map(|path| (path, None)).collect();
    items.extend(config_items(config, view)?);
    let record = baseline::read(view)?;
    for (user, account) in &record.accounts {
        if let Some(file) = &account.keys_file {
            items.insert(file.clone(), Some(format!("user {user}")));
        }
    }
    let mut owned = BTreeMap::new();
    for (path, item) in items {
        let before = kept_original(&path, view)?;
        owned.insert(path.clone(), OwnedPath { path, item, before });
    }
    for (unit, links) in record.units {
        for (path, target) in links {
            let before = target.map_or(PathBefore::Nothing, |target| PathBefore::Link { target });
            let item = Some(unit.clone());
            owned.entry(path.clone()).or_insert(OwnedPath { path, item, before });
        }
    }
    for path in record.directories {
        let before = PathBefore::Nothing;
        owned.entry(path.clone()).or_insert(OwnedPath { path, item: None, before });
    }
    for (path, meta) in record.metas {
        let before = PathBefore::Permissions { mode: meta.mode };
        owned.entry(path.clone()).or_insert(OwnedPath { path, item: None, before });
    }
    Ok(owned.into_values().collect())
}

/// The paths of a config, each with the part of the config that names it.
fn config_items(
    config: &Config,
    view: &mut TreeOverlay,
) -> Result<BTreeMap<String, Option<String>>, ApplyError> {
    let mut items = BTreeMap::new();
    for file in &config.storage.files {
        items.insert(view.resolve(&file.path)?, Some(file.path.clone()));
    }
    for unit in &config.systemd.units {
        for (path, _) in managed_paths::unit_nodes(unit, view)? {
            let dropin = path.rsplit_once(".d/").map(|(_, name)| name);
            let is_own = path.ends_with(&format!("/{}", unit.name));
            let item = match dropin.filter(|_| !is_own) {
                Some(dropin) => format!("{}/{dropin}", unit.name),
                None => unit.name.clone(),
            };
            items.insert(view.resolve(&path)?, Some(item));
        }
    }
    for file in derived_files::derived_files(config).0 {
        let path = view.resolve(&file.path)?;
        if originals::is_taken_over(&path, view)? {
            items.entry(path).or_insert(Some(REGISTRIES_CONF.to_owned()));
        }
    }
    Ok(items)
}

fn kept_original(path: &str, view: &mut TreeOverlay) -> Result<PathBefore, ApplyError> {
    let kept = view.resolve(&original_path(path))?;
    Ok(match view.node(&kept)? {
        FsNode::File { .. } => PathBefore::File { kept },
        FsNode::Link { target, .. } => PathBefore::Link { target },
        _ => PathBefore::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineConfig;
    use crate::apply::{FileOwner, InMemoryTree, empty_config, plan_apply};
    use crate::reconcile_check::{ValidationOverrides, check_reconcilable};
    use serde_json::json;

    fn defaults() -> HostDefaults {
        HostDefaults {
            owner: FileOwner::default(),
            today: 20000,
            keys_files: None,
            has_containerd: false,
        }
    }

    #[test]
    fn each_path_has_its_item_and_what_was_there_before() {
        let config: MachineConfig = serde_json::from_value(json!({
            "metadata": {"name": "50-a"},
            "spec": {"config": {
                "ignition": {"version": "3.5.0"},
                "storage": {"files": [
                    {"path": "/etc/motd", "overwrite": true, "contents": {"source": "data:,new"}},
                    {"path": "/etc/new/file", "contents": {"source": "data:,new"}},
                ]},
                "systemd": {"units": [{
                    "name": "a.service", "enabled": true,
                    "contents": "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n",
                    "dropins": [{"name": "10.conf", "contents": "[Unit]\n"}],
                }]},
            }},
        }))
        .unwrap();
        let mut tree = InMemoryTree::new();
        tree.add_file("/etc/motd", b"old");
        tree.add_file("/etc/passwd", b"root:x:0:0::/root:/bin/sh\n");
        let old = empty_config();
        let change = check_reconcilable(&old, &config, ValidationOverrides::default()).unwrap();
        let plan = plan_apply(&old, &config, &change, &tree, defaults()).unwrap();
        tree.apply(&plan);
        let owned = owned_paths(&change.new, &tree, defaults()).unwrap();
        let found = |path: &str| {
            let one = owned.iter().find(|one| one.path == path);
            let one = one.unwrap_or_else(|| panic!("no {path} in {owned:?}"));
            (one.item.as_deref(), one.before.clone())
        };
        let kept = original_path("/etc/motd");
        assert_eq!(found("/etc/motd"), (Some("/etc/motd"), PathBefore::File { kept }));
        assert_eq!(found("/etc/new/file"), (Some("/etc/new/file"), PathBefore::Nothing));
        assert_eq!(found("/etc/new"), (None, PathBefore::Nothing));
        let units = "/etc/systemd/system";
        let unit = found(&format!("{units}/a.service"));
        assert_eq!(unit, (Some("a.service"), PathBefore::Nothing));
        let dropin = found(&format!("{units}/a.service.d/10.conf"));
        assert_eq!(dropin.0, Some("a.service/10.conf"));
        let link = found(&format!("{units}/multi-user.target.wants/a.service"));
        assert_eq!(link, (Some("a.service"), PathBefore::Nothing));
    }
}
