//! Where each part of a rendered config comes from: for every file, unit, drop-in, user, argument
//! and field, the MachineConfigs that mention it, in merge order, and the fields each one decides.
//! Called by `machinist explain`.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::MachineConfigSpec;
use crate::api::names::annotation::machinist::OS_IMAGE;
use crate::api::names::object::CLUSTER;
use crate::ignition::schema::{Storage, Unit};

use super::{ParsedMachineConfig, RenderedPool, to_value};

/// The kind of a [`ProvenanceItem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProvenanceKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link.
    Link,
    /// A systemd unit.
    Unit,
    /// A drop-in, named `unit/drop-in`.
    Dropin,
    /// A user.
    User,
    /// A group.
    Group,
    /// A kernel argument.
    KernelArgument,
    /// An extension of the OS image.
    Extension,
    /// A field of the spec.
    Field,
}

impl fmt::Display for ProvenanceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
            Self::Unit => "unit",
            Self::Dropin => "drop-in",
            Self::User => "user",
            Self::Group => "group",
            Self::KernelArgument => "kernel argument",
            Self::Extension => "extension",
            Self::Field => "field",
        })
    }
}

/// What one source contributes to an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contribution {
    /// The MachineConfig; for default images the ControllerConfig, stream or annotation.
    pub source: String,
    /// The fields it sets that are in the result.
    pub holds: Vec<String>,
    /// The fields it sets that a later source overrides.
    pub overridden: Vec<String>,
    /// The kind it declares the path as, if a later source declares another kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub displaced: Option<ProvenanceKind>,
}

/// One part of a rendered config and its sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvenanceItem {
    /// Its kind.
    pub kind: ProvenanceKind,
    /// Its path or name.
    pub name: String,
    /// The sources that mention it, in merge order.
    pub contributions: Vec<Contribution>,
}

/// A mention of an item: the source, the kind it declares, and the fields it sets.
struct ItemMention<'a> {
    source: &'a str,
    kind: ProvenanceKind,
    fields: Vec<String>,
}

/// Mentions by name, in the order in which the names first appear.
#[derive(Default)]
struct ItemMentions<'a> {
    order: Vec<String>,
    by_name: HashMap<String, Vec<ItemMention<'a>>>,
}

impl<'a> ItemMentions<'a> {
    fn add(&mut self, name: String, mention: ItemMention<'a>) {
        self.by_name
            .entry(name)
            .or_insert_with_key(|name| {
                self.order.push(name.clone());
                Vec::new()
            })
            .push(mention);
    }

    fn into_items(mut self) -> Vec<ProvenanceItem> {
        let order = std::mem::take(&mut self.order);
        let item = |name: String| {
            let mentions = self.by_name.remove(&name)?;
            let kind = mentions.last()?.kind;
            Some(ProvenanceItem { kind, name, contributions: contributions(&mentions, kind) })
        };
        order.into_iter().filter_map(item).collect()
    }
}

/// Fields that later sources append to instead of replacing.
const ADDITIVE_FIELDS: [&str; 3] = ["append", "sshAuthorizedKeys", "groups"];

fn contributions(mentions: &[ItemMention<'_>], kind: ProvenanceKind) -> Vec<Contribution> {
    // A change of kind discards everything before it.
    let start = mentions.iter().rposition(|mention| mention.kind != kind).map_or(0, |at| at + 1);
    let contribution = |(index, mention): (usize, &ItemMention<'_>)| {
        let later = &mentions[index + 1..];
        let holds_in_result = |field: &String| {
            index >= start
                && (ADDITIVE_FIELDS.contains(&field.as_str())
                    || !later.iter().any(|mention| mention.fields.contains(field)))
        };
        let (holds, overridden) = mention.fields.iter().cloned().partition(holds_in_result);
        let displaced = (index < start).then_some(mention.kind);
        Contribution { source: mention.source.to_owned(), holds, overridden, displaced }
    };
    mentions.iter().enumerate().map(contribution).collect()
}

/// The provenance of every part of a rendered config.
#[must_use]
pub fn provenance(
    rendered: &RenderedPool<'_>,
    controller_config: Option<&str>,
) -> Vec<ProvenanceItem> {
    let sources = &rendered.sources;
    let mut items = Vec::new();
    let mut paths = ItemMentions::default();
    let mut units = ItemMentions::default();
    let mut users = ItemMentions::default();
    for source in sources {
        let Some(config) = &source.ignition else { continue };
        mention_paths(&mut paths, source.name(), &config.storage);
        for unit in &config.systemd.units {
            mention_unit(&mut units, source.name(), unit);
        }
        for user in &config.passwd.users {
            let fields = fields_of(&to_value(user), &["name"]);
            let mention = ItemMention { source: source.name(), kind: ProvenanceKind::User, fields };
            users.add(user.name.clone(), mention);
        }
        for group in &config.passwd.groups {
            let fields = fields_of(&to_value(group), &["name"]);
            let mention =
                ItemMention { source: source.name(), kind: ProvenanceKind::Group, fields };
            users.add(group.name.clone(), mention);
        }
    }
    items.extend(paths.into_items());
    items.extend(units.into_items());
    items.extend(users.into_items());
    items
        .extend(list_items(sources, ProvenanceKind::KernelArgument, |spec| &spec.kernel_arguments));
    items.extend(list_items(sources, ProvenanceKind::Extension, |spec| &spec.extensions));
    items.extend(scalar_fields(rendered, controller_config));
    items
}

fn fields_of(value: &Value, without: &[&str]) -> Vec<String> {
    let none = Map::new();
    let map = value.as_object().unwrap_or(&none);
    map.keys().filter(|key| !without.contains(&key.as_str())).cloned().collect()
}

fn mention_paths<'a>(paths: &mut ItemMentions<'a>, source: &'a str, storage: &Storage) {
    let mut add = |path: &str, kind: ProvenanceKind, value: Value| {
        let fields = fields_of(&value, &["path"]);
        paths.add(path.to_owned(), ItemMention { source, kind, fields });
    };
    for directory in &storage.directories {
        add(&directory.path, ProvenanceKind::Directory, to_value(directory));
    }
    for file in &storage.files {
        add(&file.path, ProvenanceKind::File, to_value(file));
    }
    for link in &storage.links {
        add(&link.path, ProvenanceKind::Link, to_value(link));
    }
}

fn mention_unit<'a>(units: &mut ItemMentions<'a>, source: &'a str, unit: &Unit) {
    let fields = fields_of(&to_value(unit), &["name", "dropins"]);
    units.add(unit.name.clone(), ItemMention { source, kind: ProvenanceKind::Unit, fields });
    for dropin in &unit.dropins {
        let fields = fields_of(&to_value(dropin), &["name"]);
        let name = format!("{}/{}", unit.name, dropin.name);
        units.add(name, ItemMention { source, kind: ProvenanceKind::Dropin, fields });
    }
}

fn list_items(
    sources: &[ParsedMachineConfig<'_>],
    kind: ProvenanceKind,
    field: fn(&MachineConfigSpec) -> &Option<Vec<String>>,
) -> Vec<ProvenanceItem> {
    let mut mentions = ItemMentions::default();
    for source in sources {
        for name in field(&source.machine_config.spec).iter().flatten() {
            mentions
                .add(name.clone(), ItemMention { source: source.name(), kind, fields: Vec::new() });
        }
    }
    mentions.into_items()
}

/// A field of the spec: its name, whether a source sets it, and whether it has a default.
struct SpecField {
    name: &'static str,
    is_set_by: fn(&ParsedMachineConfig<'_>) -> bool,
    has_base: bool,
}

const SPEC_FIELDS: [SpecField; 4] = [
    SpecField {
        name: "osImageURL",
        is_set_by: |source| sets_image(source, &source.machine_config.spec.os_image_url),
        has_base: true,
    },
    SpecField {
        name: "baseOSExtensionsContainerImage",
        is_set_by: |source| {
            sets_image(source, &source.machine_config.spec.base_os_extensions_container_image)
        },
        has_base: true,
    },
    SpecField {
        name: "kernelType",
        is_set_by: |source| {
            let kernel = source.machine_config.spec.kernel_type.as_deref().unwrap_or_default();
            crate::validate::SPECIAL_KERNELS.contains(&kernel)
        },
        has_base: false,
    },
    SpecField {
        name: "fips",
        is_set_by: |source| source.machine_config.spec.fips == Some(true),
        has_base: false,
    },
];

fn sets_image(source: &ParsedMachineConfig<'_>, image: &Option<String>) -> bool {
    image.as_ref().is_some_and(|image| !image.is_empty()) && !source.is_generated()
}

/// The default of a field, before MachineConfigs are merged.
fn base_of(
    scalar: &SpecField,
    rendered: &RenderedPool<'_>,
    controller_config: Option<&str>,
) -> Vec<String> {
    if !scalar.has_base {
        return Vec::new();
    }
    let base = &rendered.base;
    let stream = base.stream.as_ref().map(|name| format!("OSImageStream {CLUSTER}, stream {name}"));
    let annotated = base.annotated.as_ref().filter(|_| scalar.name == "osImageURL");
    let annotated =
        annotated.map(|it| format!("MachineConfigPool {}, annotation {OS_IMAGE}", it.pool));
    let controller_config = controller_config.map(|name| format!("ControllerConfig {name}"));
    controller_config.into_iter().chain(stream).chain(annotated).collect()
}

/// The fields of the spec: the last source that sets one wins.
fn scalar_fields(
    rendered: &RenderedPool<'_>,
    controller_config: Option<&str>,
) -> Vec<ProvenanceItem> {
    let item = |scalar: &SpecField| {
        let asking = rendered.sources.iter().filter(|source| (scalar.is_set_by)(source));
        let asking = asking.map(|source| source.name().to_owned());
        let base = base_of(scalar, rendered, controller_config).into_iter();
        let asking: Vec<String> = base.chain(asking).collect();
        let last = asking.len().checked_sub(1)?;
        let all_hold = scalar.name == "fips";
        let contribution = |(index, source): (usize, String)| {
            let field = vec![scalar.name.to_owned()];
            let (holds, overridden) =
                if all_hold || index == last { (field, Vec::new()) } else { (Vec::new(), field) };
            Contribution { source, holds, overridden, displaced: None }
        };
        let contributions = asking.into_iter().enumerate().map(contribution).collect();
        Some(ProvenanceItem {
            kind: ProvenanceKind::Field,
            name: scalar.name.to_owned(),
            contributions,
        })
    };
    SPEC_FIELDS.iter().filter_map(item).collect()
}
