//! Keeps the documentation of commands true: `docs/reference/commands.md` is generated from the grammar,
//! and every command that a page shows at a prompt must parse.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use super::Cli;

const PAGE: &str = "docs/reference/commands.md";

const HEAD: &str = "# Commands\n\n\
    Generated from the binary by `make reference`; every command prints the same with `--help`. Results go to\n\
    standard output, everything else to standard error. Exit codes: 0 done, 1 an error, 2 wrong usage, 3 refused.\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The section of a command and those of its subcommands.
fn describe(command: &mut Command, name: &str, page: &mut String) {
    let name = format!("{name} {}", command.get_name());
    // Values of environment variables are not part of the grammar.
    *command = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let help = command.render_long_help().to_string();
    // `name` is needed because the usage would otherwise show the path of this test.
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {}\n\n```text\n{}\n```\n", name.trim(), lines.join("\n").trim());
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
        describe(below, name.trim(), page);
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    // The maximum width of help texts, independent of the terminal.
    let mut cli = Cli::command().term_width(100);
    cli.build();
    for command in cli.get_subcommands_mut().filter(|one| one.get_name() != "help") {
        describe(command, "machinist", &mut page);
    }
    page
}

#[test]
fn the_page_of_commands_is_up_to_date() {
    let (path, page) = (root().join(PAGE), page());
    if std::env::var_os("MACHINIST_UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "{PAGE} is stale: run `make reference`");
}

/// All pages of the documentation.
fn documentation_pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The `machinist` command lines at the prompts of a page, without pipes and redirections.
fn documented_commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_console = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line.trim() == "```console";
        }
        let Some(line) = line.strip_prefix("$ machinist ").filter(|_| is_console) else { continue };
        let line = line.split([';', '|', '>', '&']).next().unwrap_or_default();
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let words = words.map(|word| word.trim_matches('\'').to_owned());
        found.push(std::iter::once("machinist".to_owned()).chain(words).collect());
    }
    found
}

#[test]
fn every_command_at_a_prompt_parses() {
    let mut count = 0;
    for page in documentation_pages() {
        for command in documented_commands(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            if let Err(error) = Cli::command().try_get_matches_from(&command) {
                panic!("{}: {}: {error}", page.display(), command.join(" "));
            }
        }
    }
    assert!(count > 40, "only {count} commands were found");
}

#[test]
fn commands_are_found_at_prompts_only() {
    let text = "```console\n$ machinist get mcp | cat # all\noutput\n$ other\n```\n```sh\n$ machinist x\n```\n";
    assert_eq!(documented_commands(text), [["machinist", "get", "mcp"]]);
}
