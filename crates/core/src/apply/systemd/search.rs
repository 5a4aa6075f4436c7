//! Finds the file of a unit, and reads its `[Install]` section.

use super::super::error::ApplyError;
use super::super::fs_node::FsNode;
use super::super::overlay::TreeOverlay;
use super::{file_name, is_unit_name, template_of};

/// Where vendors install units. Systems with a separate `/lib` name it in their links.
const VENDOR_UNIT_DIRS: [&str; 3] =
    ["/usr/local/lib/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"];
/// Where a masked unit points.
const DEV_NULL: &str = "/dev/null";

/// A unit that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnitFile {
    /// Its own name, not that of an alias.
    pub(super) name: String,
    /// Its file, as a link names it.
    pub(super) path: String,
    /// Whether it is masked.
    pub(super) is_masked: bool,
    /// Its `[Install]` section.
    pub(super) install: InstallSection,
}

/// An `[Install]` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InstallSection {
    pub(super) alias: Vec<String>,
    pub(super) wanted_by: Vec<String>,
    pub(super) required_by: Vec<String>,
    pub(super) also: Vec<String>,
    pub(super) default_instance: Option<String>,
}

/// The directories of units, in search order.
pub(super) fn unit_dirs(view: &mut TreeOverlay) -> Result<Vec<String>, ApplyError> {
    let mut directories = vec![super::UNITS_DIR.to_owned()];
    let merged =
        view.resolve("/lib/systemd/system/x")? == view.resolve("/usr/lib/systemd/system/x")?;
    for directory in VENDOR_UNIT_DIRS {
        // Where /lib is a link to /usr/lib, one of the two is enough: the one that links name.
        let is_other_name = merged
            && directory
                == if links_use_lib(view)? { VENDOR_UNIT_DIRS[2] } else { VENDOR_UNIT_DIRS[1] };
        if !is_other_name {
            directories.push(directory.to_owned());
        }
    }
    Ok(directories)
}

/// Whether links on this machine name units by `/lib`, as on Debian up to 12, rather than `/usr/lib`.
fn links_use_lib(view: &mut TreeOverlay) -> Result<bool, ApplyError> {
    if let Some(known) = view.links_use_lib {
        return Ok(known);
    }
    let found = detect_lib_links(view)?;
    view.links_use_lib = Some(found);
    Ok(found)
}

fn detect_lib_links(view: &mut TreeOverlay) -> Result<bool, ApplyError> {
    let directory = super::units_dir(view)?;
    for name in view.entries(&directory)? {
        if !name.ends_with(".wants") {
            continue;
        }
        let wants = format!("{directory}/{name}");
        for link in view.entries(&wants)? {
            if let FsNode::Link { target, .. } = view.node(&format!("{wants}/{link}"))? {
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

/// Whether systemd finds a file for this name: its own, or that of its template.
pub(super) fn has_unit_file(name: &str, view: &mut TreeOverlay) -> Result<bool, ApplyError> {
    let directories = unit_dirs(view)?;
    Ok(find_file(name, &directories, view)?.is_some())
}

/// Finds a unit, and follows links to other units.
pub(super) fn find_unit(
    name: &str,
    view: &mut TreeOverlay,
) -> Result<Option<UnitFile>, ApplyError> {
    let directories = unit_dirs(view)?;
    let mut name = name.to_owned();
    for _ in 0..8 {
        let Some((path, node)) = find_file(&name, &directories, view)? else { return Ok(None) };
        match node {
            FsNode::Link { target, .. } if target == DEV_NULL => {
                return Ok(Some(UnitFile { name, path, is_masked: true, ..UnitFile::default() }));
            }
            FsNode::Link { target, .. } => {
                let full = if target.starts_with('/') {
                    target.clone()
                } else {
                    format!("{}/{target}", super::super::overlay::parent_dir(&path))
                };
                let inside = directories.iter().any(|directory| is_in(&full, directory));
                let own = file_name(&full) == name
                    || Some(file_name(&full)) == template_of(&name).as_deref();
                if inside && !own && is_unit_name(file_name(&full)) {
                    name = file_name(&full).to_owned();
                    continue;
                }
                let Ok(real) = view.resolve(&full) else { return Ok(None) };
                let Some(text) = view.text(&real)? else { return Ok(None) };
                let install = read_install(&name, &text, &directories, view)?;
                return Ok(Some(UnitFile { name, path, is_masked: false, install }));
            }
            _ => {
                let real = view.resolve(&path)?;
                let text = view.text(&real)?.unwrap_or_default();
                let install = read_install(&name, &text, &directories, view)?;
                return Ok(Some(UnitFile { name, path, is_masked: text.is_empty(), install }));
            }
        }
    }
    Ok(None)
}

fn is_in(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/') && !rest[1..].contains('/'))
}

fn find_file(
    name: &str,
    directories: &[String],
    view: &mut TreeOverlay,
) -> Result<Option<(String, FsNode)>, ApplyError> {
    for name in std::iter::once(name.to_owned()).chain(template_of(name)) {
        for directory in directories {
            let path = format!("{directory}/{name}");
            let real = view.resolve(&path)?;
            let node = view.node(&real)?;
            if matches!(node, FsNode::File { .. } | FsNode::Link { .. }) {
                return Ok(Some((path, node)));
            }
        }
    }
    Ok(None)
}

/// The `[Install]` section of a unit and its drop-ins.
fn read_install(
    name: &str,
    text: &str,
    directories: &[String],
    view: &mut TreeOverlay,
) -> Result<InstallSection, ApplyError> {
    let mut install = InstallSection::default();
    add_install_lines(&mut install, text);
    let mut dropins = std::collections::BTreeMap::new();
    for directory in directories.iter().rev() {
        for unit in template_of(name).into_iter().chain([name.to_owned()]) {
            let place = view.resolve(&format!("{directory}/{unit}.d/x"))?;
            let place = super::super::overlay::parent_dir(&place).to_owned();
            if !matches!(view.node(&place)?, FsNode::Directory { .. }) {
                continue;
            }
            for dropin in view.entries(&place)? {
                if dropin.ends_with(".conf")
                    && let Some(text) = view.text(&format!("{place}/{dropin}"))?
                {
                    dropins.insert(dropin, text);
                }
            }
        }
    }
    for text in dropins.values() {
        add_install_lines(&mut install, text);
    }
    Ok(install)
}

fn add_install_lines(install: &mut InstallSection, text: &str) {
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

/// Lines without comments; lines that end in a backslash are joined with the next.
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
