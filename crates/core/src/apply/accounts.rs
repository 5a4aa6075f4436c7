//! The users of a config on hosts that are not MCO's: accounts are created, keys go where sshd reads them, and a
//! password changes only if the config has one. A user who leaves the config is as before.
//!
//! `users` has MCO's rules, for MCO's hosts.

use std::collections::{BTreeMap, BTreeSet};

use super::account_files::{self, PasswdLine, field, free_id, with_field, with_keys, with_line};
use super::baseline::{AccountBaseline, HostBaseline, ShadowPassword};
use super::error::ApplyError;
use super::fs_node::{FileContent, FileMeta, FileOwner, FsNode};
use super::overlay::TreeOverlay;
use super::tree::FsTreeError;
use super::users::{self, GROUP, PASSWD, SHADOW};
use crate::ignition::schema::{Passwd, PasswdUser};
use crate::os::sshd;

const GROUP_SHADOW: &str = "/etc/gshadow";
/// A password hash that no password matches. Unlike a locked account, sshd accepts the user's keys.
const NO_PASSWORD: &str = "*";
/// The group of users without one of their own, as for `useradd -N`.
const USERS_GROUP: &str = "users";

/// Where sshd reads the keys of each user: a pattern of sshd_config, or nowhere.
pub type KeysFiles = BTreeMap<String, Option<String>>;

/// Changes accounts, keys and passwords if the users differ. Comes before the files, which may belong to new users.
pub(super) fn apply_accounts(
    old: &Passwd,
    new: &Passwd,
    keys_files: &KeysFiles,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    if *old.users == *new.users {
        return Ok(());
    }
    undo_core_rules(!old.users.is_empty(), view, record)?;
    let wanted = by_name(new);
    let gone: Vec<String> =
        record.accounts.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
    for name in gone {
        let account = record.accounts.remove(&name).unwrap_or_default();
        release_account(&name, account, view)?;
    }
    for (name, user) in &wanted {
        let mut account = record.accounts.remove(name).unwrap_or_default();
        apply_account(user, keys_files, &mut account, view)?;
        record.accounts.insert(name.clone(), account);
    }
    Ok(())
}

/// The users by name. Rendered configs have each once; of several entries the keys add up and other fields of the last
/// one win.
fn by_name(passwd: &Passwd) -> BTreeMap<String, PasswdUser> {
    let mut all: BTreeMap<String, PasswdUser> = BTreeMap::new();
    for user in passwd.users.iter() {
        let mut user = user.clone();
        if let Some(earlier) = all.get(&user.name) {
            let mut keys = earlier.ssh_authorized_keys.clone();
            for key in user.ssh_authorized_keys.iter() {
                keys.push(key.clone());
            }
            user.ssh_authorized_keys = keys;
            user.password_hash = user.password_hash.or_else(|| earlier.password_hash.clone());
        }
        all.insert(user.name.clone(), user);
    }
    all
}

/// Earlier versions wrote keys and password of `core` as on MCO's hosts.
fn undo_core_rules(
    is_managed: bool,
    view: &mut TreeOverlay,
    record: &mut HostBaseline,
) -> Result<(), ApplyError> {
    if !is_managed || record.password.is_none() {
        return Ok(());
    }
    users::release_core(view, record)
}

fn apply_account(
    user: &PasswdUser,
    keys_files: &KeysFiles,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    check_fields(user)?;
    let passwd = text_of(PASSWD, view)?.unwrap_or_default();
    let line = match PasswdLine::find(&passwd, &user.name) {
        Some(line) => adjust(line, user, account, view)?,
        None => create(user, &passwd, account, view)?,
    };
    set_groups(user, account, view)?;
    set_password(user, account, view)?;
    set_keys(user, &line, keys_files, account, view)
}

fn check_fields(user: &PasswdUser) -> Result<(), ApplyError> {
    let refuse = |field: &'static str, problem: &str| {
        let (user, problem) = (user.name.clone(), problem.to_owned());
        Err(ApplyError::User { user, field, problem })
    };
    if !account_files::is_valid_name(&user.name) {
        return refuse("name", "is not a user name: use up to 32 small letters, digits, - and _");
    }
    for (field, value) in [
        ("gecos", &user.gecos),
        ("homeDir", &user.home_dir),
        ("shell", &user.shell),
        ("passwordHash", &user.password_hash),
    ] {
        if value.as_deref().is_some_and(|text| text.contains([':', '\n', '\r', '\0'])) {
            return refuse(field, "contains a colon or a line break: remove it");
        }
    }
    for (field, value) in [("homeDir", &user.home_dir), ("shell", &user.shell)] {
        if given(value).is_some_and(|path| !path.starts_with('/') || path.contains("/../")) {
            return refuse(field, "is not an absolute path: begin it with /");
        }
    }
    Ok(())
}

fn given(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

/// An account that exists. One that was made for a config follows it; one of an administrator has to match.
fn adjust(
    line: PasswdLine,
    user: &PasswdUser,
    account: &AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<PasswdLine, ApplyError> {
    let differs = |field: &'static str, has: &str, wants: &str| ApplyError::User {
        user: user.name.clone(),
        field,
        problem: format!(
            "is {wants}, but the machine's user has {has}: change the user with usermod, or remove the field"
        ),
    };
    if let Some(uid) = user.uid.filter(|uid| *uid != i64::from(line.uid)) {
        return Err(differs("uid", &line.uid.to_string(), &uid.to_string()));
    }
    if let Some(home) = given(&user.home_dir).filter(|home| *home != line.home) {
        return Err(differs("homeDir", &line.home, home));
    }
    if let Some(group) = given(&user.primary_group) {
        let gid = group_id(group, user, "primaryGroup", view)?;
        if gid != line.gid {
            return Err(differs("primaryGroup", &line.gid.to_string(), &gid.to_string()));
        }
    }
    let mut new = line.clone();
    new.gecos = user.gecos.clone().unwrap_or(new.gecos);
    new.shell = given(&user.shell).map_or(new.shell, str::to_owned);
    if new == line {
        return Ok(line);
    }
    if !account.is_created {
        let (field, has, wants) = match new.shell == line.shell {
            true => ("gecos", &line.gecos, &new.gecos),
            false => ("shell", &line.shell, &new.shell),
        };
        return Err(differs(field, has, wants));
    }
    let text = text_of(PASSWD, view)?.unwrap_or_default();
    write_text(PASSWD, with_line(&text, &user.name, Some(&new.to_line())), view)?;
    Ok(new)
}

/// Creates an account as `useradd` does.
fn create(
    user: &PasswdUser,
    passwd: &str,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<PasswdLine, ApplyError> {
    let refuse = |field: &'static str, problem: String| ApplyError::User {
        user: user.name.clone(),
        field,
        problem,
    };
    let groups = text_of(GROUP, view)?.unwrap_or_default();
    let is_system = user.system.unwrap_or_default();
    let asked =
        match user.uid {
            Some(uid) => Some(u32::try_from(uid).map_err(|_| {
                refuse("uid", format!("is {uid}, which is not a user ID: correct it"))
            })?),
            None => None,
        };
    let none_free = || refuse("uid", "is not given, and no number is free: give one".to_owned());
    // The group of the user gets the same number if it is free in both lists.
    let uid = match asked {
        Some(uid) => free_id([passwd, ""], Some(uid), is_system),
        None => free_id([passwd, &groups], None, is_system),
    }
    .ok_or_else(none_free)?;
    if asked.is_some_and(|asked| asked != uid) {
        return Err(refuse(
            "uid",
            format!("is {}, which another user has: give another one", asked.unwrap_or_default()),
        ));
    }
    let gid = match given(&user.primary_group) {
        Some(group) => group_id(group, user, "primaryGroup", view)?,
        None if user.no_user_group == Some(true) => {
            group_id(USERS_GROUP, user, "noUserGroup", view)?
        }
        None => {
            create_group(user, uid, &groups, is_system, account, view)?.ok_or_else(none_free)?
        }
    };
    let shell = given(&user.shell).map(str::to_owned);
    let shell = match shell {
        Some(shell) => shell,
        None if view.exists("/bin/bash")? || view.exists("/usr/bin/bash")? => {
            "/bin/bash".to_owned()
        }
        None => "/bin/sh".to_owned(),
    };
    let home = given(&user.home_dir).map_or_else(|| format!("/home/{}", user.name), str::to_owned);
    let line = PasswdLine {
        name: user.name.clone(),
        uid,
        gid,
        gecos: user.gecos.clone().unwrap_or_default(),
        home,
        shell,
    };
    write_text(PASSWD, with_line(passwd, &user.name, Some(&line.to_line())), view)?;
    if let Some(shadow) = text_of(SHADOW, view)? {
        let today = view.defaults.today;
        let entry = format!("{}:{NO_PASSWORD}:{today}:0:99999:7:::", user.name);
        write_text(SHADOW, with_line(&shadow, &user.name, Some(&entry)), view)?;
    }
    account.is_created = true;
    let creates_home = user.no_create_home != Some(true) && !is_system;
    if creates_home {
        let home = view.resolve(&line.home)?;
        view.create_parent_directories(
            &home,
            FileMeta { mode: 0o755, owner: view.defaults.owner },
        )?;
        let owner = FileOwner { uid, gid };
        view.create_parent_directories(&format!("{home}/."), FileMeta { mode: 0o700, owner })?;
    }
    Ok(line)
}

/// The group of the same name; `None` if no number is free.
fn create_group(
    user: &PasswdUser,
    uid: u32,
    groups: &str,
    is_system: bool,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<Option<u32>, ApplyError> {
    let name = &user.name;
    if let Some(gid) = field(groups, name, 2).and_then(|gid| gid.parse().ok()) {
        return Ok(Some(gid));
    }
    let Some(gid) = free_id([groups, ""], Some(uid), is_system) else { return Ok(None) };
    write_text(GROUP, with_line(groups, name, Some(&format!("{name}:x:{gid}:"))), view)?;
    if let Some(text) = text_of(GROUP_SHADOW, view)? {
        write_text(GROUP_SHADOW, with_line(&text, name, Some(&format!("{name}:!::"))), view)?;
    }
    account.has_created_group = true;
    Ok(Some(gid))
}

fn group_id(
    group: &str,
    user: &PasswdUser,
    field_name: &'static str,
    view: &mut TreeOverlay,
) -> Result<u32, ApplyError> {
    let text = text_of(GROUP, view)?.unwrap_or_default();
    field(&text, group, 2).and_then(|gid| gid.parse().ok()).ok_or_else(|| ApplyError::User {
        user: user.name.clone(),
        field: field_name,
        problem: format!("needs the group {group}, which the machine does not have: create it, or name another one"),
    })
}

/// Adds the user to the groups of the config, and removes it from those that an earlier config added it to.
fn set_groups(
    user: &PasswdUser,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let wanted: BTreeSet<String> = user.groups.iter().cloned().collect();
    for group in std::mem::take(&mut account.groups) {
        if wanted.contains(&group) {
            account.groups.insert(group);
        } else {
            set_member(&group, &user.name, false, view)?;
        }
    }
    for group in wanted {
        group_id(&group, user, "groups", view)?;
        if set_member(&group, &user.name, true, view)? {
            account.groups.insert(group);
        }
    }
    Ok(())
}

/// Returns whether the membership changed.
fn set_member(
    group: &str,
    user: &str,
    is_member: bool,
    view: &mut TreeOverlay,
) -> Result<bool, ApplyError> {
    let mut has_changed = false;
    for path in [GROUP, GROUP_SHADOW] {
        let Some(text) = text_of(path, view)? else { continue };
        let new = account_files::with_member(&text, group, user, is_member);
        has_changed |= path == GROUP && new != text;
        write_text(path, new, view)?;
    }
    Ok(has_changed)
}

/// Sets the password that the config has, or restores the one before it.
fn set_password(
    user: &PasswdUser,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let Some(hash) = given(&user.password_hash) else {
        return restore_password(&user.name, account, view);
    };
    let text = text_of(SHADOW, view)?.unwrap_or_default();
    let Some(before) = field(&text, &user.name, 1) else { return Ok(()) };
    if before == hash {
        return Ok(());
    }
    let changed = field(&text, &user.name, 2).unwrap_or_default().to_owned();
    let before = ShadowPassword { hash: before.to_owned(), changed };
    account.password.get_or_insert(before);
    let today = view.defaults.today.to_string();
    let text = with_field(&text, &user.name, 1, hash);
    write_text(SHADOW, with_field(&text, &user.name, 2, &today), view)
}

fn restore_password(
    user: &str,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let Some(before) = account.password.take() else { return Ok(()) };
    let text = text_of(SHADOW, view)?.unwrap_or_default();
    let text = with_field(&text, user, 1, &before.hash);
    write_text(SHADOW, with_field(&text, user, 2, &before.changed), view)
}

/// Writes the keys where sshd reads them.
fn set_keys(
    user: &PasswdUser,
    line: &PasswdLine,
    keys_files: &KeysFiles,
    account: &mut AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    let pattern = keys_files.get(&user.name).cloned().flatten();
    let path = pattern.map(|it| sshd::expand(&it, &line.name, line.uid, &line.home));
    if let Some(earlier) = account.keys_file.take().filter(|it| path.as_ref() != Some(it)) {
        remove_keys(&earlier, view)?;
    }
    if user.ssh_authorized_keys.is_empty() {
        return path.map_or(Ok(()), |path| remove_keys(&path, view));
    }
    let Some(path) = path else {
        return Err(ApplyError::User {
            user: user.name.clone(),
            field: "sshAuthorizedKeys",
            problem: "has no effect: sshd of this machine reads keys from no file (AuthorizedKeysFile none)".to_owned(),
        });
    };
    let real = view.resolve(&path)?;
    let owner = FileOwner { uid: line.uid, gid: line.gid };
    let is_in_home = path.starts_with(&format!("{}/", line.home));
    let (owner, mode, directory_mode) =
        if is_in_home { (owner, 0o600, 0o700) } else { (view.defaults.owner, 0o644, 0o755) };
    let meta = match view.node(&real)? {
        FsNode::File { meta, .. } => meta,
        _ => FileMeta { mode, owner },
    };
    let text = text_of(&real, view)?.unwrap_or_default();
    let text = with_keys(&text, user.ssh_authorized_keys.iter().map(String::as_str));
    if is_in_home {
        let home = view.resolve(&line.home)?;
        view.create_parent_directories(
            &home,
            FileMeta { mode: 0o755, owner: view.defaults.owner },
        )?;
    }
    view.create_parent_directories(&real, FileMeta { mode: directory_mode, owner })?;
    let node = FsNode::File { meta, content: FileContent::new(text.into_bytes()) };
    view.check_settable(&real, &node)?;
    view.set(&real, node);
    account.keys_file = Some(path);
    Ok(())
}

/// Removes the keys of a config from a file. The file goes if nothing is left in it.
fn remove_keys(path: &str, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    let path = view.resolve(path)?;
    let FsNode::File { meta, .. } = view.node(&path)? else { return Ok(()) };
    let text = text_of(&path, view)?.unwrap_or_default();
    let new = with_keys(&text, std::iter::empty());
    if new == text {
        return Ok(());
    }
    let node = match new.is_empty() {
        true => FsNode::Absent,
        false => FsNode::File { meta, content: FileContent::new(new.into_bytes()) },
    };
    view.set(&path, node);
    Ok(())
}

/// Takes an account out of the config: it goes if a config created it. Its files stay.
fn release_account(
    name: &str,
    mut account: AccountBaseline,
    view: &mut TreeOverlay,
) -> Result<(), ApplyError> {
    if let Some(path) = account.keys_file.take() {
        remove_keys(&path, view)?;
    }
    for group in std::mem::take(&mut account.groups) {
        set_member(&group, name, false, view)?;
    }
    restore_password(name, &mut account, view)?;
    let mut gone = Vec::new();
    if account.is_created {
        gone.extend([PASSWD, SHADOW]);
    }
    if account.has_created_group {
        gone.extend([GROUP, GROUP_SHADOW]);
    }
    for path in gone {
        if let Some(text) = text_of(path, view)? {
            write_text(path, with_line(&text, name, None), view)?;
        }
    }
    Ok(())
}

/// The text of a file that is written back whole. Bytes that are not UTF-8, such as an old name, must not be replaced.
fn text_of(path: &str, view: &mut TreeOverlay) -> Result<Option<String>, ApplyError> {
    let Some(bytes) = view.bytes(path)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].split(|it| *it == b'\n').count();
        let problem = format!("line {line} is not UTF-8: write it in UTF-8, or remove the line");
        FsTreeError { path: path.to_owned(), problem }.into()
    })
}

/// Writes a file of accounts, with the permissions that it has.
fn write_text(path: &str, text: String, view: &mut TreeOverlay) -> Result<(), ApplyError> {
    let path = view.resolve(path)?;
    let meta = match view.node(&path)? {
        FsNode::File { meta, .. } => meta,
        FsNode::Absent => FileMeta { mode: 0o644, owner: view.defaults.owner },
        found => {
            let problem = format!("it is {}", found.kind());
            return Err(FsTreeError { path, problem }.into());
        }
    };
    if view.bytes(&path)?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    view.set_with_parents(
        &path,
        FsNode::File { meta, content: FileContent::new(text.into_bytes()) },
    )
}

#[cfg(test)]
mod tests;
