//! The documentation speaks of commands that there are: `docs/reference/commands.md` is made of the
//! grammar, and whatever pages show at a prompt is understood.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use super::Cli;

const PAGE: &str = "docs/reference/commands.md";

const HEAD: &str = "# Commands\n\n\
    Generated from the program by `make reference`; every command prints the same with `--help`. Results go to standard output, \
    everything else to standard error. Exit codes: 0 done, 1 an error, 2 wrong usage, 3 a clear \"no\".\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A command and those below it.
fn describe(command: &mut Command, name: &str, page: &mut String) {
    let name = format!("{name} {}", command.get_name());
    // What the variables of whoever runs the test hold is not part of the grammar.
    *command = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let help = command.render_long_help().to_string();
    // The usage names the program by the path of this test otherwise.
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {}\n\n```text\n{}\n```\n", name.trim(), lines.join("\n").trim());
    for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
        describe(below, name.trim(), page);
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    // As wide as help is at most, whatever the terminal of the test.
    let mut cli = Cli::command().term_width(100);
    cli.build();
    for command in cli.get_subcommands_mut().filter(|one| one.get_name() != "help") {
        describe(command, "machinist", &mut page);
    }
    page
}

#[test]
fn the_page_of_commands_is_what_the_program_says() {
    let (path, page) = (root().join(PAGE), page());
    if std::env::var_os("MACHINIST_UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "{PAGE} is stale: run `make reference`");
}

/// The pages that people read.
fn documentation_pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The calls of our program at the prompts of a page, as words. What a shell adds is left out.
fn documented_calls(text: &str) -> Vec<Vec<String>> {
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
fn every_command_at_a_prompt_is_understood() {
    let mut count = 0;
    for page in documentation_pages() {
        for call in documented_calls(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            if let Err(error) = Cli::command().try_get_matches_from(&call) {
                panic!("{}: {}: {error}", page.display(), call.join(" "));
            }
        }
    }
    assert!(count > 40, "only {count} commands were found");
}

#[test]
fn calls_are_found_at_prompts_only() {
    let text = "```console\n$ machinist get mcp | cat # all\noutput\n$ other\n```\n```sh\n$ machinist x\n```\n";
    assert_eq!(documented_calls(text), [["machinist", "get", "mcp"]]);
}
