//! Lines of prose have fewer than 120 characters. Tables and blocks of code are as wide as their content.

use crate::docs::{files, read};

const LIMIT: usize = 119;

/// The numbers of the lines of prose that are too long.
fn long_lines(page: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let text = line.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code && !text.starts_with('|') && !text.starts_with('#');
        if is_prose && line.chars().count() > LIMIT {
            found.push(index + 1);
        }
    }
    found
}

#[test]
fn lines_of_prose_fit_the_limit() {
    let mut pages = files("docs", &[".md"]);
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
            .map(str::to_owned),
    );
    let found: Vec<String> = pages
        .iter()
        .flat_map(|page| {
            long_lines(&read(page)).into_iter().map(move |line| format!("{page}:{line}"))
        })
        .collect();
    assert!(found.is_empty(), "lines with more than {LIMIT} characters; wrap them: {found:?}");
}

#[test]
fn tables_and_code_may_be_wider() {
    let wide = "x".repeat(LIMIT + 1);
    let page = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n{wide}\n# {wide}\n");
    assert_eq!(long_lines(&page), [1, 6]);
}
