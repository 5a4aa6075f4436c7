//! Every retired command and flag name still parses, and no help text shows it.

use std::collections::{BTreeMap, BTreeSet};

use clap::{CommandFactory as _, Parser as _};

use super::Cli;

/// A command line with a retired name, and that name.
const RETIRED: [(&str, &str); 35] = [
    ("move --from a --to b", "move"),
    ("controller --metrics-listen-address 127.0.0.1:1", "--metrics-listen-address"),
    ("operator --metrics-listen-address 127.0.0.1:1", "--metrics-listen-address"),
    ("server start --metrics-listen-address 127.0.0.1:1", "--metrics-listen-address"),
    ("server bootstrap --metrics-listen-address 127.0.0.1:1", "--metrics-listen-address"),
    ("server start --sealed-url https://a --sealed-ca f", "--sealed-ca"),
    ("server bootstrap --sealed-url https://a --sealed-ca f", "--sealed-ca"),
    ("daemon start --listen 127.0.0.1:1", "--listen"),
    ("daemon --listen 127.0.0.1:1", "--listen"),
    ("daemon start --metrics-url 127.0.0.1:1", "--metrics-url"),
    ("daemon start --root-mount /rootfs", "--root-mount"),
    ("daemon plan --file f", "--file"),
    ("join --kubeconfig k --listen 127.0.0.1:1", "--listen"),
    ("join --kubeconfig k --program p", "--program"), // words: keep
    ("join --kubeconfig k --role worker", "--role"),
    ("up --data d", "--data"),
    ("up --server-listen 127.0.0.1:1 --server-sealed https://a", "--server-sealed"),
    ("up --server-join-token-file f --server-first-boot https://a", "--server-first-boot"),
    ("hub backup --data d f", "--data"),
    ("hub restore --data d f", "--data"),
    ("hub token --data d --role viewer", "--data"),
    ("once --root r --file f", "--file"),
    ("firstboot --file f --no-reboot", "--file"),
    ("firstboot --no-reboot", "--no-reboot"),
    ("firstboot-complete-machineconfig --machineconfig-file f", "--machineconfig-file"),
    ("token create --file f --pool worker", "--file"),
    ("token create --pool worker --expires 1h", "--expires"),
    ("token create --pool worker --from 10.0.0.0/8", "--from"),
    ("must-gather --file f", "--file"),
    ("pointer --pool worker --server https://a", "--server"),
    ("pointer --pool worker --server-url https://a --ca-file f", "--ca-file"),
    ("pointer --pool worker --server-url https://a --token-file f", "--token-file"),
    ("join --server https://a --ca-file f --token t", "--server"),
    ("enrol --name n", "--name"),
    ("bootstrap --manifests d --out o", "--manifests"),
];

/// Whether help text has an option of this name, in a line such as `  -f, --filename <PATH>`.
fn lists_option(help: &str, name: &str) -> bool {
    help.lines().any(|line| {
        let words: Vec<&str> = line.split([' ', '=', '[']).filter(|word| !word.is_empty()).collect();
        matches!(words.as_slice(), [first, ..] if *first == name)
            || matches!(words.as_slice(), [short, long, ..] if short.ends_with(',') && *long == name)
    })
}

#[test]
fn retired_names_parse_and_are_not_shown() {
    let mut root = Cli::command();
    root.build();
    for (line, retired) in RETIRED {
        let words = std::iter::once("machinist").chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_ok(), "machinist {line}");

        let mut names = line.split(' ').take_while(|word| !word.starts_with("--"));
        let command = names.try_fold(&root, |command, name| command.find_subcommand(name));
        let help = command.unwrap().clone().render_long_help().to_string();
        assert!(help.contains("--help"), "{help}");
        assert!(!lists_option(&help, retired), "machinist {line}: --help shows {retired}");
    }
    assert!(lists_option("  -f, --filename <PATH>", "--filename"));
    assert!(!root.render_long_help().to_string().contains("\n  move"));
}

/// Flags whose value has more than one name, because the values differ: a pattern of names, a kubeconfig, a directory.
const SEVERAL_VALUES: [&str; 4] = ["delete", "node-name", "out", "to"];

fn value_names(command: &clap::Command, into: &mut BTreeMap<String, BTreeSet<String>>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let (Some(flag), Some(names)) = (argument.get_long(), argument.get_value_names()) else {
            continue;
        };
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        into.entry(flag.to_owned()).or_default().insert(names);
    }
    for below in command.get_subcommands() {
        value_names(below, into);
    }
}

#[test]
fn a_flag_has_the_same_value_in_every_command() {
    let mut root = Cli::command();
    root.build();
    let mut found = BTreeMap::new();
    value_names(&root, &mut found);
    assert_eq!(found["server-ca-file"], BTreeSet::from(["FILE".to_owned()]));
    let several = found.iter().filter(|(_, names)| names.len() > 1);
    let several: Vec<&str> = several.map(|(flag, _)| flag.as_str()).collect();
    assert_eq!(several, SEVERAL_VALUES, "{found:#?}");
}

#[test]
fn a_bare_number_is_still_a_ttl_in_seconds() {
    let parses = |ttl: &str| {
        Cli::try_parse_from(["machinist", "hub", "token", "--role", "viewer", "--ttl", ttl]).is_ok()
    };
    assert!(parses("3600") && parses("1h") && !parses("soon"));
}
