//! The tree that layers are unpacked into. Every path is resolved by the kernel as if the tree were
//! the root of the machine: whatever links a layer brings, nothing outside is ever touched.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use machinist_core::os::layers::LayerPaths;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, XattrFlags, chownat, fchmod,
    fchown, fsetxattr, linkat, mkdirat, open, openat, openat2, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

/// A tree, opened.
#[derive(Debug)]
pub(super) struct UnpackTree {
    root: OwnedFd,
    /// The folder that was opened last: the next path is most often in it too.
    last_directory: Option<(String, Rc<OwnedFd>)>,
}

/// Whose something is and what may be done with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntryMeta {
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
    /// Extended attributes.
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl UnpackTree {
    /// Opens a folder that exists.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: open(path, OPEN_DIRECTORY, Mode::empty())?, last_directory: None })
    }

    /// Opens a folder of the tree.
    fn open_directory(&mut self, path: &str) -> io::Result<Rc<OwnedFd>> {
        if let Some((_, folder)) = self.last_directory.as_ref().filter(|(last, _)| last == path) {
            return Ok(Rc::clone(folder));
        }
        let name = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let folder = Rc::new(openat2(&self.root, name, OPEN_DIRECTORY, Mode::empty(), resolve)?);
        self.last_directory = Some((path.to_owned(), Rc::clone(&folder)));
        Ok(folder)
    }

    /// The folder that a path is in, made where it is missing, and the name in it.
    fn open_parent<'a>(&mut self, path: &'a str) -> io::Result<(Rc<OwnedFd>, &'a str)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.open_directory(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !above.is_empty() => {
                let (folder, missing) = self.open_parent(above)?;
                mkdirat(&*folder, missing, Mode::from_raw_mode(0o755))?;
                Ok((self.open_directory(above)?, name))
            }
            folder => Ok((folder?, name)),
        }
    }

    /// The place for something new: what is there goes.
    fn open_parent_and_remove<'a>(&mut self, path: &'a str) -> io::Result<(Rc<OwnedFd>, &'a str)> {
        let (folder, name) = self.open_parent(path)?;
        if remove(&folder, name)? {
            // It may have been the folder that was opened last, or one above it.
            self.last_directory = None;
        }
        Ok((folder, name))
    }

    /// Puts a folder there; what is in one that exists stays.
    pub(super) fn put_directory(&mut self, path: &str, meta: &EntryMeta) -> io::Result<()> {
        if path.is_empty() {
            return set_metadata(self.root.as_fd(), meta);
        }
        let (folder, name) = self.open_parent(path)?;
        if kind(&folder, name)? != Some(FileType::Directory) {
            let (folder, name) = self.open_parent_and_remove(path)?;
            mkdirat(&*folder, name, Mode::RWXU)?;
        }
        let made = openat(&*folder, name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        set_metadata(made.as_fd(), meta)
    }

    /// Puts a file there.
    pub(super) fn put_file(
        &mut self,
        path: &str,
        meta: &EntryMeta,
        contents: &mut impl Read,
    ) -> io::Result<()> {
        let (folder, name) = self.open_parent_and_remove(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&*folder, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        io::copy(contents, &mut file)?;
        set_metadata(file.as_fd(), meta)
    }

    /// Puts a symbolic link there.
    pub(super) fn put_symlink(
        &mut self,
        path: &str,
        target: &[u8],
        meta: &EntryMeta,
    ) -> io::Result<()> {
        let (folder, name) = self.open_parent_and_remove(path)?;
        symlinkat(target, &*folder, name)?;
        let (owner, group) = (Uid::from_raw(meta.owner), Gid::from_raw(meta.group));
        Ok(chownat(&*folder, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives something that is there a second name.
    pub(super) fn put_hard_link(&mut self, path: &str, first: &str) -> io::Result<()> {
        if path == first {
            return Ok(());
        }
        let (above, old) = first.rsplit_once('/').unwrap_or(("", first));
        let from = self.open_directory(above)?;
        let (folder, name) = self.open_parent_and_remove(path)?;
        Ok(linkat(&*from, old, &*folder, name, AtFlags::empty())?)
    }

    /// Takes away what is there, but for what the layer itself has put.
    pub(super) fn whiteout(&mut self, path: &str, own: &LayerPaths) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match self.open_directory(above) {
            Err(error) if is_not_found(&error) => return Ok(()),
            folder => folder?,
        };
        if !own.contains(path) {
            if remove(&folder, name)? {
                self.last_directory = None;
            }
            return Ok(());
        }
        if kind(&folder, name)? == Some(FileType::Directory) {
            self.whiteout_contents(path, own)?;
        }
        Ok(())
    }

    /// Takes away what is in a folder, but for what the layer itself has put.
    pub(super) fn whiteout_contents(&mut self, path: &str, own: &LayerPaths) -> io::Result<()> {
        let folder = match self.open_directory(path) {
            Err(error) if is_not_found(&error) => return Ok(()),
            folder => folder?,
        };
        for name in names(&folder)? {
            let inside = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.whiteout(&inside, own)?;
        }
        Ok(())
    }

    /// Whether there is something of a kind; links at the end are not followed.
    pub(super) fn is_type(&mut self, path: &str, wanted: FileType) -> io::Result<bool> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.open_directory(above) {
            Err(error) if is_not_found(&error) => Ok(false),
            folder => Ok(kind(&*folder?, name)? == Some(wanted)),
        }
    }

    /// What is in a folder; nothing where there is none.
    pub(super) fn list(&mut self, path: &str) -> io::Result<Vec<String>> {
        match self.open_directory(path) {
            Err(error) if is_not_found(&error) => Ok(Vec::new()),
            folder => names(&*folder?),
        }
    }

    /// How many bytes a file has; 0 where there is none.
    pub(super) fn size(&mut self, path: &str) -> io::Result<u64> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Ok(folder) = self.open_directory(above) else { return Ok(0) };
        match statat(&*folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
            Err(Errno::NOENT) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn kind(folder: impl AsFd, name: &str) -> io::Result<Option<FileType>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names(folder: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") => {}
            Ok(name) => names.push(name.to_owned()),
            Err(_) => return Err(io::Error::other("a name is not UTF-8")),
        }
    }
    Ok(names)
}

/// Removes something with all that is in it; says whether it was a folder.
fn remove(folder: impl AsFd, name: &str) -> io::Result<bool> {
    let folder = folder.as_fd();
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(false),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    let inner = openat(folder, name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

/// Owner first: a change of it takes away capabilities and the set-uid bit.
fn set_metadata(fd: impl AsFd, meta: &EntryMeta) -> io::Result<()> {
    let fd = fd.as_fd();
    fchown(fd, Some(Uid::from_raw(meta.owner)), Some(Gid::from_raw(meta.group)))?;
    fchmod(fd, Mode::from_raw_mode(meta.mode & 0o7777))?;
    for (name, value) in &meta.xattrs {
        fsetxattr(fd, name.as_str(), value, XattrFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn meta(mode: u32) -> EntryMeta {
        let stat = fs::metadata("/proc/self").unwrap();
        let (owner, group) = {
            use std::os::unix::fs::MetadataExt as _;
            (stat.uid(), stat.gid())
        };
        EntryMeta { owner, group, mode, xattrs: Vec::new() }
    }

    fn put(tree: &mut UnpackTree, path: &str, text: &str) {
        tree.put_file(path, &meta(0o644), &mut text.as_bytes()).unwrap();
    }

    #[test]
    fn links_lead_nowhere_outside() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir_all(outer.path().join("tree")).unwrap();
        fs::create_dir_all(outer.path().join("outside")).unwrap();
        let mut tree = UnpackTree::open(&outer.path().join("tree")).unwrap();
        // Whichever way a link points, what is written through it lands in the tree.
        tree.put_symlink("up", b"../outside", &meta(0o777)).unwrap();
        let far = outer.path().join("outside");
        tree.put_symlink("far", far.as_os_str().as_encoded_bytes(), &meta(0o777)).unwrap();
        for path in ["up/x", "far/x"] {
            let _ = tree.put_file(path, &meta(0o644), &mut "y".as_bytes());
            let _ = tree.whiteout(path, &LayerPaths::default());
            let _ = tree.put_hard_link("mine", "far/x");
        }
        assert_eq!(fs::read_dir(&far).unwrap().count(), 0);
    }

    #[test]
    fn a_later_layer_replaces_links_and_folders_alike() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = UnpackTree::open(folder.path()).unwrap();
        put(&mut tree, "usr/lib/a", "a");
        tree.put_symlink("lib", b"usr/lib", &meta(0o777)).unwrap();
        // Through the link.
        put(&mut tree, "lib/b", "b");
        assert_eq!(fs::read_to_string(folder.path().join("usr/lib/b")).unwrap(), "b");
        tree.put_hard_link("usr/c", "usr/lib/a").unwrap();
        // A file in place of a folder, and a folder in place of a file.
        put(&mut tree, "usr/lib", "now a file");
        assert_eq!(fs::read_to_string(folder.path().join("usr/c")).unwrap(), "a");
        tree.put_directory("usr/lib", &meta(0o750)).unwrap();
        assert!(tree.is_type("usr/lib", FileType::Directory).unwrap());
        assert_eq!(tree.list("usr/lib").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_a_layer_hides_is_never_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = UnpackTree::open(folder.path()).unwrap();
        put(&mut tree, "d/old", "");
        put(&mut tree, "d/sub/old", "");
        let mut own = LayerPaths::default();
        for path in ["d/new", "d/sub/new"] {
            put(&mut tree, path, "");
            own.insert(path);
        }
        tree.whiteout_contents("d", &own).unwrap();
        assert_eq!(tree.list("d/sub").unwrap(), ["new"]);
        let mut names = tree.list("d").unwrap();
        names.sort();
        assert_eq!(names, ["new", "sub"]);
        tree.whiteout("nothing/there", &own).unwrap();
        tree.whiteout("d", &LayerPaths::default()).unwrap();
        assert_eq!(tree.list("").unwrap(), Vec::<String>::new());
    }
}
