//! The users of a machine: their IDs, and the keys and password of `core` by MCO's rules. `accounts` has the rules of
//! other hosts.

use std::collections::HashMap;

use super::baseline::{HostBaseline, ShadowPassword};
use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FileOwner, FsNode};
use super::originals;
use super::overlay::TreeOverlay;
use super::tree::FsTreeError;
use crate::ignition::schema::Passwd;
use crate::reconcile_check::CORE_USER;

pub(super) const PASSWD: &str = "/etc/passwd";
pub(super) const GROUP: &str = "/etc/group";
pub(super) const SHADOW: &str = "/etc/shadow";
const CORE_HOME: &str = "/home/core";
const CORE_SSH_DIR: &str = "/home/core/.ssh";
const AUTHORIZED_KEYS_DIR: &str = "/home/core/.ssh/authorized_keys.d";
const AUTHORIZED_KEYS: &str = "/home/core/.ssh/authorized_keys.d/ignition";
/// A password hash that no password matches.
const LOCKED_PASSWORD: &str = "*";

/// Users and groups by name.
pub(super) struct UserDatabase {
    users: HashMap<String, FileOwner>,
    groups: HashMap<String, u32>,
}

impl UserDatabase {
    /// Knows root only.
    pub(super) fn root_only() -> Self {
        Self { users: HashMap::new(), groups: HashMap::new() }
    }

    pub(super) fn read(view: &mut TreeOverlay) -> Result<Self, ApplyError> {
        let (passwd, group) = (view.text(PASSWD)?, view.text(GROUP)?);
        let mut names = Self { users: HashMap::new(), groups: HashMap::new() };
        for line in passwd.unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, uid, gid, ..] = fields.as_slice()
                && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
            {
                names.users.entry((*name).to_owned()).or_insert(FileOwner { uid, gid });
            }
        }
        for line in group.unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, gid, ..] = fields.as_slice()
                && let Ok(gid) = gid.parse()
            {
                names.groups.entry((*name).to_owned()).or_insert(gid);
            }
        }
        Ok(names)
    }

    /// The ID of a user. Root is 0 even if there is no list of users yet.
    pub(super) fn uid(&self, name: &str) -> Option<u32> {
        let found = self.users.get(name).map(|owner| owner.uid);
        found.or_else(|| (name == "root").then_some(0))
    }

    /// The ID of a group.
    pub(super) fn gid(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied().or_else(|| (name == "root").then_some(0))
    }

    /// `core`, and the group of that name.
    fn core(&self) -> Option<FileOwner> {
        let owner = self.users.get(CORE_USER)?;
        Some(FileOwner { uid: owner.uid, gid: self.gid(CORE_USER).unwrap_or(owner.gid) })
    }
}

/// Sets keys and password of `core` if the users differ. Returns notes about what was left out.
pub(super) fn apply_core_user(
    old: &Passwd,
    new: &Passwd,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<Option<String>, ApplyError> {
    if *old.users == *new.users {
        return Ok(None);
    }
    let Some(core) = UserDatabase::read(view)?.core() else {
        return Ok(Some(
            "there is no user core on this machine: its keys and password were left out".to_owned(),
        ));
    };
    if new.users.is_empty() {
        release_core(view, record)?;
        return Ok(None);
    }
    let keys = new.users.iter().flat_map(|user| &user.ssh_authorized_keys);
    let text: String = keys.map(|key| format!("{key}\n")).collect();
    write_keys(text, core, !old.users.is_empty(), view, record)?;
    for user in &new.users {
        let hash = user
            .password_hash
            .as_deref()
            .filter(|hash| !hash.is_empty())
            .unwrap_or(LOCKED_PASSWORD);
        if hash.contains([':', '\n', '\0']) {
            return Err(ApplyError::PasswordHash { user: user.name.clone() });
        }
        let today = view.defaults.today.to_string();
        let before = set_password(hash, Some(&today), view)?;
        if let Some(before) = before
            && record.password.is_none()
        {
            record.password = Some(before);
        }
    }
    Ok(None)
}

/// Restores keys and password of `core`.
pub(super) fn release_core(
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    release_keys(view, record)?;
    match record.password.take() {
        Some(before) => set_password(&before.hash, Some(&before.changed), view)?,
        None => set_password(LOCKED_PASSWORD, None, view)?,
    };
    Ok(())
}

fn write_keys(
    text: String,
    core: FileOwner,
    is_managed: bool,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    let home = view.resolve(CORE_HOME)?;
    let below = |path: &str| format!("{home}{}", &path[CORE_HOME.len()..]);
    let meta = FileMeta { mode: 0o700, owner: core };
    // The home directory belongs to core, whose links could lead root anywhere.
    for directory in [home.clone(), below(CORE_SSH_DIR), below(AUTHORIZED_KEYS_DIR)] {
        match view.node(&directory)? {
            FsNode::Directory { meta: found }
                if directory == home || found.owner.uid == core.uid => {}
            // Created by root by mistake; core could not log in.
            FsNode::Directory { meta: found } => {
                record.keep_meta(&directory, found);
                view.set(&directory, FsNode::Directory { meta: FileMeta { owner: core, ..found } });
            }
            FsNode::Absent => {
                view.create_parent_directories(&format!("{directory}/."), meta)?;
            }
            found => {
                let (found, wanted) = (found.kind(), "a directory");
                return Err(ApplyError::Obstructed { path: directory, found, wanted });
            }
        }
    }
    let path = below(AUTHORIZED_KEYS);
    originals::back_up_without_marker(&path, is_managed, view)?;
    let meta = FileMeta { mode: 0o600, owner: core };
    view.set_with_parents(
        &path,
        FsNode::File { meta, content: FileContent::new(text.into_bytes()) },
    )
}

fn release_keys(view: &mut TreeOverlay, record: &mut HostBaseline) -> Result<(), ApplyError> {
    let home = view.resolve(CORE_HOME)?;
    let below = |path: &str| format!("{home}{}", &path[CORE_HOME.len()..]);
    originals::restore_original(&below(AUTHORIZED_KEYS), view)?;
    for directory in [below(AUTHORIZED_KEYS_DIR), below(CORE_SSH_DIR)] {
        if let Some(meta) = record.metas.remove(&directory)
            && matches!(view.node(&directory)?, FsNode::Directory { .. })
        {
            view.set(&directory, FsNode::Directory { meta });
        }
    }
    Ok(())
}

/// Sets the password of `core` if it differs. Returns the previous one.
fn set_password(
    hash: &str,
    changed: Option<&str>,
    view: &mut TreeOverlay,
) -> Result<Option<ShadowPassword>, ApplyError> {
    let path = view.resolve(SHADOW)?;
    let FsNode::File { meta, .. } = view.node(&path)? else { return Ok(None) };
    let bytes = view.bytes(&path)?.unwrap_or_default();
    let text = String::from_utf8(bytes)
        .map_err(|_| FsTreeError { path: path.clone(), problem: "it is not text".to_owned() })?;
    let mut before = None;
    let mut new = String::with_capacity(text.len() + hash.len());
    for line in text.split_inclusive('\n') {
        let mut fields: Vec<&str> = line.split(':').collect();
        let is_core = fields.first() == Some(&CORE_USER) && fields.len() >= 3;
        if !is_core || before.is_some() {
            new.push_str(line);
            continue;
        }
        before = Some(ShadowPassword { hash: fields[1].to_owned(), changed: fields[2].to_owned() });
        if fields[1] != hash {
            fields[1] = hash;
            fields[2] = changed.unwrap_or(fields[2]);
        }
        new.push_str(&fields.join(":"));
    }
    if new != text {
        view.set_with_parents(
            &path,
            FsNode::File { meta, content: FileContent::new(new.into_bytes()) },
        )?;
    }
    Ok(before)
}
