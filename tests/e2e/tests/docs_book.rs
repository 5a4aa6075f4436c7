//! The book: mdBook builds it, and every link in it resolves.

use machinist_e2e::{Lab, cache, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn collect_pages(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "html") {
            found.push(path);
        }
    }
}

/// What is wrong with a link of a page, if anything.
fn link_problem(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = if path.is_empty() { page.to_owned() } else { page.with_file_name("").join(path) };
    if !file.exists() {
        return Some(format!("{}: {link}: there is no such file", page.display()));
    }
    let is_page = file.extension().is_some_and(|ending| ending == "html");
    if anchor.is_empty() || !is_page {
        return None;
    }
    let text = fs::read_to_string(&file).unwrap();
    let is_there = text.contains(&format!("id=\"{anchor}\""));
    (!is_there).then(|| format!("{}: {link}: there is no such heading", page.display()))
}

#[test]
fn the_book_builds_and_its_links_resolve() {
    let lab = Lab::new().unwrap();
    let out = lab.create_dir("book").unwrap();
    command::run(Command::new(cache::source_root().join("scripts/book")).arg(&out)).unwrap();
    let mut found = Vec::new();
    collect_pages(&out.join("docs"), &mut found);
    assert!(found.len() > 25, "{found:?}");
    let mut wrong = Vec::new();
    for page in &found {
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        // The print page and the 404 page only repeat links of other pages.
        if ["print.html", "404.html", "toc.html"].contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(page).unwrap();
        let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let inside = links.filter(|link| !link.contains(':') && !link.is_empty());
        wrong.extend(inside.filter_map(|link| link_problem(page, link)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
