//! `docs/reference/names.md`, generated from `core::api::names`.

use crate::docs::source::{Constant, constants};
use crate::docs::{assert_up_to_date, read};
use std::fmt::Write as _;

const HEAD: &str = "# Names: annotations, labels, conditions, states, places\n\n\
    Generated from the source by `make reference`. Names that begin with `machinist.dev/` are ours; the others are\n\
    those of OpenShift's Machine Config Operator, and mean the same. How the annotations for rollouts work together is\n\
    in [rollout.md](../rollout.md).\n";

/// The files, and the start of their sections.
const PARTS: [(&str, &str, &str); 5] = [
    ("annotation", "Annotations", "annotation"),
    ("label", "Labels", "label"),
    ("condition", "Conditions", "type"),
    ("state", "States of a machine", "state"),
    ("path", "Places on a machine", "path"),
];

/// A comment for a table cell, without rustdoc links.
fn words(comment: &str, all: &[Constant]) -> String {
    let mut text = String::new();
    let mut rest = comment;
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        let known = all.iter().find(|other| other.name == name);
        let _ = write!(text, "{before}`{}`", known.map_or(name, |one| one.value.as_str()));
        rest = match after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    text.push_str(rest);
    text.replace('|', "\\|")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (file, title, column) in PARTS {
        let all = constants(&read(&format!("crates/core/src/api/names/{file}.rs")));
        assert!(!all.is_empty(), "{file}: no names");
        let _ = write!(page, "\n## {title}\n");
        let mut section = None;
        for one in &all {
            if section != Some(&one.section) {
                section = Some(&one.section);
                if !one.section.is_empty() {
                    let _ = write!(page, "\n### {}\n", one.section);
                }
                let _ = write!(page, "\n| {column} | meaning |\n|---|---|\n");
            }
            let _ = writeln!(page, "| `{}` | {} |", one.value, words(&one.comment, &all));
        }
    }
    page
}

#[test]
fn names_page_is_up_to_date() {
    assert_up_to_date("docs/reference/names.md", &page());
}
