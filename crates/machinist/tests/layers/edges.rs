//! Finds which top-level modules of a crate mention which others, from the tokens of its source files.
//!
//! Tokens rather than text: comments and strings do not count, and grouped imports need no regular
//! expression. Macros are not expanded, and `#[path]` is not supported outside tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::path::Path;

/// For each top-level module, the modules it mentions and the files in which it does.
pub(crate) type Edges = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// All edges of the crate whose sources are in a directory.
pub(crate) fn edges_of_crate(root: &Path) -> Edges {
    let lib = tokens(&root.join("lib.rs"));
    let reexports = reexports(&lib);
    let mut edges = Edges::new();
    for module in declared(&lib) {
        let mut mentioned = BTreeMap::new();
        let (file, directory) = (root.join(format!("{module}.rs")), root.join(&module));
        let file = if file.exists() { file } else { directory.join("mod.rs") };
        read_module(root, &file, &directory, 1, &mut mentioned);
        let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, files) in mentioned {
            let used = reexports.get(&name).cloned().unwrap_or(name);
            uses.entry(used).or_default().extend(files);
        }
        uses.remove(&module);
        edges.insert(module, uses);
    }
    edges
}

/// The items that the crate's root re-exports, each with its module.
fn reexports(lib: &TokenStream) -> BTreeMap<String, String> {
    let mut items = BTreeMap::new();
    let mut trees = lib.clone().into_iter();
    while let Some(tree) = trees.next() {
        if !matches!(&tree, TokenTree::Ident(word) if *word == "use") {
            continue;
        }
        let mut names = Vec::new();
        for tree in trees.by_ref() {
            match &tree {
                TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                tree => identifiers(tree, &mut names),
            }
        }
        if let Some((module, exported)) = names.split_first() {
            items.extend(exported.iter().map(|name| (name.clone(), module.clone())));
        }
    }
    items
}

fn identifiers(tree: &TokenTree, names: &mut Vec<String>) {
    match tree {
        TokenTree::Ident(name) => names.push(name.to_string()),
        TokenTree::Group(group) => {
            group.stream().into_iter().for_each(|inner| identifiers(&inner, names));
        }
        _ => {}
    }
}

/// Reads one file and the modules it declares. `depth` is the number of `super` that lead to the root.
fn read_module(
    root: &Path,
    file: &Path,
    directory: &Path,
    depth: usize,
    found: &mut BTreeMap<String, Vec<String>>,
) {
    let stream = tokens(file);
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    let mut mentioned = Vec::new();
    mentions(stream.clone(), depth, &mut mentioned);
    for module in mentioned {
        let files = found.entry(module).or_default();
        if !files.contains(&name) {
            files.push(name.clone());
        }
    }
    for module in declared(&stream) {
        let (file, below) = (directory.join(format!("{module}.rs")), directory.join(&module));
        let file = if file.exists() { file } else { below.join("mod.rs") };
        // An inline module has no file; its tokens were read with its parent.
        if file.exists() {
            read_module(root, &file, &below, depth + 1, found);
        }
    }
}

fn tokens(file: &Path) -> TokenStream {
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let stream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    without_tests(stream)
}

/// The tokens without the items under `#[cfg(test)]` or `#[cfg(any(test, …))]`.
fn without_tests(stream: TokenStream) -> TokenStream {
    let mut kept = Vec::new();
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let is_hash = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == '#');
        if is_hash && trees.peek().is_some_and(is_test_attribute) {
            trees.next();
            // The item ends with its braces or with a semicolon.
            for tree in trees.by_ref() {
                let ends = match &tree {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(punct) => punct.as_char() == ';',
                    _ => false,
                };
                if ends {
                    break;
                }
            }
            continue;
        }
        kept.push(match tree {
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream());
                TokenTree::Group(proc_macro2::Group::new(group.delimiter(), inner))
            }
            other => other,
        });
    }
    kept.into_iter().collect()
}

fn is_test_attribute(tree: &TokenTree) -> bool {
    let TokenTree::Group(group) = tree else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(any(test")
}

/// The modules that a file declares with `mod name;`.
fn declared(stream: &TokenStream) -> Vec<String> {
    let trees: Vec<TokenTree> = stream.clone().into_iter().collect();
    let mut names = Vec::new();
    for window in trees.windows(3) {
        if let [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(end)] = window
            && *word == "mod"
            && end.as_char() == ';'
        {
            names.push(name.to_string());
        }
    }
    names
}

/// The names after `crate::layers::` and after as many `super::` as lead to the root.
fn mentions(stream: TokenStream, depth: usize, found: &mut Vec<String>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut at = 0;
    while at < trees.len() {
        match &trees[at] {
            TokenTree::Group(group) => {
                // An inline module is one level deeper.
                let is_module = at >= 2
                    && matches!(&trees[at - 2], TokenTree::Ident(word) if *word == "mod")
                    && group.delimiter() == Delimiter::Brace;
                mentions(group.stream(), depth + usize::from(is_module), found);
            }
            TokenTree::Ident(word) if *word == "crate" => after_root(&trees[at + 1..], found),
            TokenTree::Ident(word) if *word == "super" => {
                let mut supers = 1;
                let mut next = at + 1;
                while is_path_separator(&trees[next..])
                    && matches!(trees.get(next + 2), Some(TokenTree::Ident(w)) if *w == "super")
                {
                    supers += 1;
                    next += 3;
                }
                if supers == depth {
                    after_root(&trees[next..], found);
                }
                at = next - 1;
            }
            _ => {}
        }
        at += 1;
    }
}

fn is_path_separator(trees: &[TokenTree]) -> bool {
    let colon =
        |tree: Option<&TokenTree>| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(trees.first()) && colon(trees.get(1))
}

/// The first name of `::name…`, or of each path in `::{name…, name…}`.
fn after_root(trees: &[TokenTree], found: &mut Vec<String>) {
    if !is_path_separator(trees) {
        return;
    }
    match trees.get(2) {
        Some(TokenTree::Ident(name)) => found.push(name.to_string()),
        Some(TokenTree::Group(group)) => {
            let mut is_first = true;
            for tree in group.stream() {
                match &tree {
                    TokenTree::Ident(name) if is_first => {
                        found.push(name.to_string());
                        is_first = false;
                    }
                    TokenTree::Punct(punct) if punct.as_char() == ',' => is_first = true,
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
