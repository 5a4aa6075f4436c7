//! Finding the file of a unit, and what it says about installing it.

use super::super::error::ApplyError;
use super::super::node::Node;
use super::super::view::View;
use super::{base, is_unit_name, template_of};

/// Where vendors put units. Systems that keep `/lib` apart name it in their links.
const VENDOR: [&str; 3] =
    ["/usr/local/lib/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"];
/// Where a masked unit points.
const NULL: &str = "/dev/null";

/// A unit that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Its own name, not that of an alias.
    pub(super) name: String,
    /// Its file, as a link to it says.
    pub(super) path: String,
    /// Whether it is masked.
    pub(super) is_masked: bool,
    /// Its `[Install]` section.
    pub(super) install: Install,
}

/// An `[Install]` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Install {
    pub(super) alias: Vec<String>,
    pub(super) wanted_by: Vec<String>,
    pub(super) required_by: Vec<String>,
    pub(super) also: Vec<String>,
    pub(super) default_instance: Option<String>,
}

/// The folders of units in the order in which they are searched.
pub(super) fn folders(view: &mut View) -> Result<Vec<String>, ApplyError> {
    let mut folders = vec![super::UNITS.to_owned()];
    let merged =
        view.resolve("/lib/systemd/system/x")? == view.resolve("/usr/lib/systemd/system/x")?;
    for folder in VENDOR {
        // Where /lib is a link to /usr/lib, one of the two is enough: the one that links name.
        let is_other_name =
            merged && folder == if names_lib(view)? { VENDOR[2] } else { VENDOR[1] };
        if !is_other_name {
            folders.push(folder.to_owned());
        }
    }
    Ok(folders)
}

/// Whether links on this machine name units by `/lib`, as on Debian up to 12, rather than `/usr/lib`.
fn names_lib(view: &mut View) -> Result<bool, ApplyError> {
    if let Some(known) = view.names_lib {
        return Ok(known);
    }
    let found = find_lib(view)?;
    view.names_lib = Some(found);
    Ok(found)
}

fn find_lib(view: &mut View) -> Result<bool, ApplyError> {
    let folder = super::units_folder(view)?;
    for name in view.names(&folder)? {
        if !name.ends_with(".wants") {
            continue;
        }
        let wants = format!("{folder}/{name}");
        for link in view.names(&wants)? {
            if let Node::Link { target, .. } = view.node(&format!("{wants}/{link}"))? {
                if target.starts_with("/lib/") {
                    return Ok(true);
                }
                if target.starts_with("/usr/lib/") {
                    return Ok(false);
                }
            }
        }
    }
    let release = match view.text("/etc/os-release")? {
        Some(text) => Some(text),
        None => view.text("/usr/lib/os-release")?,
    };
    let release = release.unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    let major = field("VERSION_ID").split('.').next().and_then(|text| text.parse::<u32>().ok());
    Ok(match field("ID").as_str() {
        "debian" => major.is_some_and(|major| major <= 12),
        "ubuntu" => major.is_some_and(|major| major <= 23),
        _ => false,
    })
}

/// Whether systemd lists a file of this name.
pub(super) fn is_listed(name: &str, view: &mut View) -> Result<bool, ApplyError> {
    for folder in folders(view)? {
        let path = view.resolve(&format!("{folder}/{name}"))?;
        if matches!(view.node(&path)?, Node::File { .. } | Node::Link { .. }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Finds a unit; links to other units are followed.
pub(super) fn find(name: &str, view: &mut View) -> Result<Option<Found>, ApplyError> {
    let folders = folders(view)?;
    let mut name = name.to_owned();
    for _ in 0..8 {
        let Some((path, node)) = find_file(&name, &folders, view)? else { return Ok(None) };
        match node {
            Node::Link { target, .. } if target == NULL => {
                return Ok(Some(Found { name, path, is_masked: true, ..Found::default() }));
            }
            Node::Link { target, .. } => {
                let full = if target.starts_with('/') {
                    target.clone()
                } else {
                    format!("{}/{target}", super::super::view::folder_of(&path))
                };
                let inside = folders.iter().any(|folder| is_in(&full, folder));
                let own = base(&full) == name || Some(base(&full)) == template_of(&name).as_deref();
                if inside && !own && is_unit_name(base(&full)) {
                    name = base(&full).to_owned();
                    continue;
                }
                let Ok(real) = view.resolve(&full) else { return Ok(None) };
                let Some(text) = view.text(&real)? else { return Ok(None) };
                let install = read_install(&name, &text, &folders, view)?;
                return Ok(Some(Found { name, path, is_masked: false, install }));
            }
            _ => {
                let real = view.resolve(&path)?;
                let text = view.text(&real)?.unwrap_or_default();
                let install = read_install(&name, &text, &folders, view)?;
                return Ok(Some(Found { name, path, is_masked: text.is_empty(), install }));
            }
        }
    }
    Ok(None)
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/'))
}

fn find_file(
    name: &str,
    folders: &[String],
    view: &mut View,
) -> Result<Option<(String, Node)>, ApplyError> {
    for name in std::iter::once(name.to_owned()).chain(template_of(name)) {
        for folder in folders {
            let path = format!("{folder}/{name}");
            let real = view.resolve(&path)?;
            let node = view.node(&real)?;
            if matches!(node, Node::File { .. } | Node::Link { .. }) {
                return Ok(Some((path, node)));
            }
        }
    }
    Ok(None)
}

/// The `[Install]` section of a unit and of its drop-ins.
fn read_install(
    name: &str,
    text: &str,
    folders: &[String],
    view: &mut View,
) -> Result<Install, ApplyError> {
    let mut install = Install::default();
    add(&mut install, text);
    let mut dropins = std::collections::BTreeMap::new();
    for folder in folders.iter().rev() {
        for unit in template_of(name).into_iter().chain([name.to_owned()]) {
            let place = view.resolve(&format!("{folder}/{unit}.d/x"))?;
            let place = super::super::view::folder_of(&place).to_owned();
            if !matches!(view.node(&place)?, Node::Folder { .. }) {
                continue;
            }
            for dropin in view.names(&place)? {
                if dropin.ends_with(".conf")
                    && let Some(text) = view.text(&format!("{place}/{dropin}"))?
                {
                    dropins.insert(dropin, text);
                }
            }
        }
    }
    for text in dropins.values() {
        add(&mut install, text);
    }
    Ok(install)
}

fn add(install: &mut Install, text: &str) {
    let mut is_install = false;
    for line in logical_lines(text) {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            is_install = section.trim_end_matches(']') == "Install";
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_install) else { continue };
        let list = match key.trim() {
            "Alias" => &mut install.alias,
            "WantedBy" => &mut install.wanted_by,
            "RequiredBy" => &mut install.required_by,
            "Also" => &mut install.also,
            "DefaultInstance" => {
                let value = value.trim();
                install.default_instance = (!value.is_empty()).then(|| value.to_owned());
                continue;
            }
            _ => continue,
        };
        if value.trim().is_empty() {
            list.clear();
        }
        list.extend(value.split_whitespace().map(|word| word.trim_matches('"').to_owned()));
    }
}

/// Lines without comments, those that end in a backslash joined with the next.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.push(' ');
                last.push_str(part);
            }
            None => lines.push(part.to_owned()),
        }
        goes_on = more;
    }
    lines
}
