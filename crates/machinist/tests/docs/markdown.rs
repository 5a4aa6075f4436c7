//! The subset of Markdown that the checks need: headings, links, tables and code blocks.

/// A link: the line that it is on, and where it leads.
pub(crate) struct MarkdownLink {
    pub(crate) line: usize,
    pub(crate) target: String,
}

/// The lines of a page that are text and not code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        (!is_code).then_some((index + 1, line))
    })
}

/// Every link of a page.
pub(crate) fn links(text: &str) -> Vec<MarkdownLink> {
    let mut found = Vec::new();
    for (line, words) in prose(text) {
        for part in words.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                found.push(MarkdownLink { line, target: target.to_owned() });
            }
        }
    }
    found
}

/// The anchors of a page, as mdBook and GitHub derive them from headings.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let keep = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
        let plain: String = heading.trim().to_lowercase().chars().filter(|c| keep(*c)).collect();
        let anchor = plain.replace(' ', "-");
        let before = found.iter().filter(|other| **other == anchor).count();
        found.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
    }
    found
}

/// The cells of every row of every table of a page.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let line = line.trim().trim_matches('|').replace("\\|", "\u{1}");
        line.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
    };
    prose(text).filter(|(_, line)| line.starts_with('|')).map(|(_, line)| cells(line)).collect()
}

#[test]
fn anchors_match_those_of_github() {
    let text = "# A `Name`: what, and why\n## Twice\n## Twice\n```\n# code\n```\n";
    assert_eq!(anchors(text), ["a-name-what-and-why", "twice", "twice-1"]);
}
