//! Every link resolves, and every page is in the book.

use crate::docs::markdown::{anchors, links};
use crate::docs::{files, read, root};
use std::path::{Component, Path, PathBuf};

/// The pages of the book, and those in the root directory.
fn pages() -> Vec<String> {
    let mut pages = files("docs", &[".md"]);
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned));
    pages
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => drop(done.pop()),
            Component::CurDir => {}
            other => done.push(other),
        }
        done
    })
}

/// The problem with a link of a page, if any.
fn problem(page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => PathBuf::from(page),
        path => plain(&Path::new(page).with_file_name("").join(path)),
    };
    if !root().join(&file).exists() {
        return Some("there is no such file".to_owned());
    }
    let is_page = file.extension().is_some_and(|ending| ending == "md");
    if page.starts_with("docs/") && is_page && !file.starts_with("docs") {
        return Some("a page outside the book: the book cannot show it".to_owned());
    }
    let is_there = || anchors(&read(file.to_str().unwrap())).iter().any(|one| one == anchor);
    (!anchor.is_empty() && is_page && !is_there()).then(|| "there is no such heading".to_owned())
}

#[test]
fn every_link_resolves() {
    let mut wrong = Vec::new();
    for page in pages() {
        for link in links(&read(&page)) {
            if let Some(problem) = problem(&page, &link.target) {
                wrong.push(format!("{page}:{}: {}: {problem}", link.line, link.target));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_book_once() {
    let summary: Vec<String> =
        links(&read("docs/SUMMARY.md")).into_iter().map(|link| link.target).collect();
    for page in files("docs", &[".md"]) {
        let name = page.strip_prefix("docs/").unwrap();
        let expected = usize::from(name != "SUMMARY.md");
        let count = summary.iter().filter(|other| *other == name).count();
        assert_eq!(count, expected, "{page} is {count} times in docs/SUMMARY.md");
    }
}
