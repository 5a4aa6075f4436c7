//! The archive: a compressed tar file with one directory.

use std::collections::BTreeMap;
use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Packs files into an archive below a directory; all have the modification time `time`, in seconds.
///
/// # Errors
/// None in practice: everything is in memory.
pub fn pack(directory: &str, files: &BTreeMap<String, Vec<u8>>, time: u64) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o600);
        header.set_mtime(time);
        header.set_size(contents.len() as u64);
        tar.append_data(&mut header, format!("{directory}/{path}"), contents.as_slice())?;
    }
    tar.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn what_is_packed_comes_out_again() {
        let long = format!("home/{}.yaml", "x".repeat(253));
        let files: BTreeMap<String, Vec<u8>> =
            [("a.txt".to_owned(), b"a".to_vec()), (long, b"long".to_vec())].into();
        let bytes = pack("gathered", &files, 7).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut found = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            found.insert(path.strip_prefix("gathered/").unwrap().to_owned(), contents);
        }
        assert_eq!(found, files);
        assert_eq!(bytes, pack("gathered", &files, 7).unwrap());
    }
}
