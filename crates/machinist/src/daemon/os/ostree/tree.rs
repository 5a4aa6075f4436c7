//! The tree that layers are unpacked into. The kernel resolves every path as if the tree were the root of
//! the machine: whatever links a layer contains, nothing outside is touched.

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
    /// The directory that was opened last. The next path is most often in it too.
    last_directory: Option<(String, Rc<OwnedFd>)>,
}

/// Owner and permissions.
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
    /// Opens an existing directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: open(path, OPEN_DIRECTORY, Mode::empty())?, last_directory: None })
    }

    /// Opens a directory of the tree.
    fn open_directory(&mut self, path: &str) -> io::Result<Rc<OwnedFd>> {
        if let Some((_, directory)) = self.last_directory.as_ref().filter(|(last, _)| last == path)
        {
            return Ok(Rc::clone(directory));
        }
        let name = if path.is_empty() { "." } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let directory = Rc::new(openat2(&self.root, name, OPEN_DIRECTORY, Mode::empty(), resolve)?);
        self.last_directory = Some((path.to_owned(), Rc::clone(&directory)));
        Ok(directory)
    }

    /// The directory of a path, created if it is missing, and the name in it.
    fn open_parent<'a>(&mut self, path: &'a str) -> io::Result<(Rc<OwnedFd>, &'a str)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.open_directory(above) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !above.is_empty() => {
                let (directory, missing) = self.open_parent(above)?;
                mkdirat(&*directory, missing, Mode::from_raw_mode(0o755))?;
                Ok((self.open_directory(above)?, name))
            }
            directory => Ok((directory?, name)),
        }
    }

    /// Prepares the path of a new entry: removes what is there.
    fn open_parent_and_remove<'a>(&mut self, path: &'a str) -> io::Result<(Rc<OwnedFd>, &'a str)> {
        let (directory, name) = self.open_parent(path)?;
        if remove(&directory, name)? {
            // It may have been the cached directory or one of its parents.
            self.last_directory = None;
        }
        Ok((directory, name))
    }

    /// Creates a directory; the contents of an existing one stay.
    pub(super) fn put_directory(&mut self, path: &str, meta: &EntryMeta) -> io::Result<()> {
        if path.is_empty() {
            return set_metadata(self.root.as_fd(), meta);
        }
        let (directory, name) = self.open_parent(path)?;
        if kind(&directory, name)? != Some(FileType::Directory) {
            let (directory, name) = self.open_parent_and_remove(path)?;
            mkdirat(&*directory, name, Mode::RWXU)?;
        }
        let made = openat(&*directory, name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        set_metadata(made.as_fd(), meta)
    }

    /// Creates a file.
    pub(super) fn put_file(
        &mut self,
        path: &str,
        meta: &EntryMeta,
        contents: &mut impl Read,
    ) -> io::Result<()> {
        let (directory, name) = self.open_parent_and_remove(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&*directory, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        io::copy(contents, &mut file)?;
        set_metadata(file.as_fd(), meta)
    }

    /// Creates a symbolic link.
    pub(super) fn put_symlink(
        &mut self,
        path: &str,
        target: &[u8],
        meta: &EntryMeta,
    ) -> io::Result<()> {
        let (directory, name) = self.open_parent_and_remove(path)?;
        symlinkat(target, &*directory, name)?;
        let (owner, group) = (Uid::from_raw(meta.owner), Gid::from_raw(meta.group));
        Ok(chownat(&*directory, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Creates a hard link.
    pub(super) fn put_hard_link(&mut self, path: &str, first: &str) -> io::Result<()> {
        if path == first {
            return Ok(());
        }
        let (above, old) = first.rsplit_once('/').unwrap_or(("", first));
        let from = self.open_directory(above)?;
        let (directory, name) = self.open_parent_and_remove(path)?;
        Ok(linkat(&*from, old, &*directory, name, AtFlags::empty())?)
    }

    /// Removes what is there, except for what the layer itself has written.
    pub(super) fn whiteout(&mut self, path: &str, own: &LayerPaths) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = match self.open_directory(above) {
            Err(error) if is_not_found(&error) => return Ok(()),
            directory => directory?,
        };
        if !own.contains(path) {
            if remove(&directory, name)? {
                self.last_directory = None;
            }
            return Ok(());
        }
        if kind(&directory, name)? == Some(FileType::Directory) {
            self.whiteout_contents(path, own)?;
        }
        Ok(())
    }

    /// Removes the contents of a directory, except for what the layer itself has written.
    pub(super) fn whiteout_contents(&mut self, path: &str, own: &LayerPaths) -> io::Result<()> {
        let directory = match self.open_directory(path) {
            Err(error) if is_not_found(&error) => return Ok(()),
            directory => directory?,
        };
        for name in names(&directory)? {
            let inside = if path.is_empty() { name } else { format!("{path}/{name}") };
            self.whiteout(&inside, own)?;
        }
        Ok(())
    }

    /// Whether there is an entry of a kind; links are not followed.
    pub(super) fn is_type(&mut self, path: &str, wanted: FileType) -> io::Result<bool> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.open_directory(above) {
            Err(error) if is_not_found(&error) => Ok(false),
            directory => Ok(kind(&*directory?, name)? == Some(wanted)),
        }
    }

    /// The entries of a directory; empty if there is none.
    pub(super) fn list(&mut self, path: &str) -> io::Result<Vec<String>> {
        match self.open_directory(path) {
            Err(error) if is_not_found(&error) => Ok(Vec::new()),
            directory => names(&*directory?),
        }
    }

    /// The size of a file; 0 if there is none.
    pub(super) fn size(&mut self, path: &str) -> io::Result<u64> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Ok(directory) = self.open_directory(above) else { return Ok(0) };
        match statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
            Err(Errno::NOENT) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn kind(directory: impl AsFd, name: &str) -> io::Result<Option<FileType>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") => {}
            Ok(name) => names.push(name.to_owned()),
            Err(_) => return Err(io::Error::other("a name is not UTF-8")),
        }
    }
    Ok(names)
}

/// Removes an entry with all its contents. Returns whether it was a directory.
fn remove(directory: impl AsFd, name: &str) -> io::Result<bool> {
    let directory = directory.as_fd();
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(false),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    let inner = openat(directory, name, OPEN_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

/// The owner first: chown clears capabilities and the set-user-ID bit.
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
    fn links_do_not_lead_outside() {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir_all(outer.path().join("tree")).unwrap();
        fs::create_dir_all(outer.path().join("outside")).unwrap();
        let mut tree = UnpackTree::open(&outer.path().join("tree")).unwrap();
        // Wherever a link points, what is written through it stays in the tree.
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
    fn a_later_layer_replaces_links_and_directories_alike() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = UnpackTree::open(directory.path()).unwrap();
        put(&mut tree, "usr/lib/a", "a");
        tree.put_symlink("lib", b"usr/lib", &meta(0o777)).unwrap();
        // Through the link.
        put(&mut tree, "lib/b", "b");
        assert_eq!(fs::read_to_string(directory.path().join("usr/lib/b")).unwrap(), "b");
        tree.put_hard_link("usr/c", "usr/lib/a").unwrap();
        // A file in place of a directory, and a directory in place of a file.
        put(&mut tree, "usr/lib", "now a file");
        assert_eq!(fs::read_to_string(directory.path().join("usr/c")).unwrap(), "a");
        tree.put_directory("usr/lib", &meta(0o750)).unwrap();
        assert!(tree.is_type("usr/lib", FileType::Directory).unwrap());
        assert_eq!(tree.list("usr/lib").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn whiteouts_never_hide_entries_of_their_own_layer() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = UnpackTree::open(directory.path()).unwrap();
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
