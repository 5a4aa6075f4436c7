//! Tables of the annotation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::api::{MachineConfig, MachineConfigPool};

fn shown(action: &DisruptionAction) -> String {
    let unit = action.reload.as_ref().or(action.restart.as_ref());
    let unit = unit.map(|unit| format!(" {}", unit.service_name)).unwrap_or_default();
    let command: String = action.run.iter().map(|word| format!(" {word}")).collect();
    format!("{:?}{unit}{command}", action.type_)
}

#[test]
fn entries_are_read() {
    for (text, expected) in [
        ("none", vec!["*: None"]),
        ("  reload nginx.service ; \n", vec!["*: Reload nginx.service"]),
        (
            "/etc/a/: run /usr/bin/check -a /etc/a\n/etc/a: restart a@b.service",
            vec!["/etc/a: Run /usr/bin/check -a /etc/a", "/etc/a: Restart a@b.service"],
        ),
        ("a.timer: none; reboot", vec!["a.timer: None", "*: Reboot"]),
        ("/: none", vec!["/: None"]),
    ] {
        let found: Vec<String> = parse(text)
            .unwrap()
            .iter()
            .map(|it| format!("{}: {}", it.subject.as_deref().unwrap_or("*"), shown(&it.action)))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn wrong_entries_are_refused_with_field_and_remedy() {
    for (text, expected) in [
        ("", "no action: write one such as"),
        (" ; ", "no action"),
        ("dance", "write none, reload UNIT, restart UNIT, run COMMAND or reboot"),
        ("None", "write none"),
        ("reload", "write reload and one unit"),
        ("reload nginx", "such as reload nginx.service"),
        ("reload a.service b.service", "write reload and one unit"),
        ("restart ../x.service", "write restart and one unit"),
        ("none now", "nothing follows none: separate entries with ;"),
        ("run", "by its full path"),
        ("run update-ca-trust", "by its full path"),
        ("run /bin/a \"b c\"", "put /bin/a with them into a script"),
        ("run /bin/a && /bin/b", "no shell runs it"),
        ("run /bin/a $HOME", "no shell runs it"),
        ("etc/a: none", "the full path of a file or directory"),
        ("/etc/../a: none", "without //, . and .."),
        ("/etc/a:", "write none"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with("metadata.annotations: machinist.dev/on-change: "), "{error}");
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = format!("run /bin/a {}", "x ".repeat(100));
    assert!(parse(&long).unwrap_err().to_string().contains("at most 64 words"));
    assert!(matches!(parse(&"none;".repeat(65)), Err(OnChangeError::TooLong(65))));
    assert!(matches!(parse(&"x".repeat(1 << 20)), Err(OnChangeError::TooLong(_))));
}

fn config(name: &str, on_change: &str) -> MachineConfig {
    let annotations = json!({ON_CHANGE: on_change});
    let annotations = if on_change.is_empty() { Value::Null } else { annotations };
    serde_json::from_value(
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {}}),
    )
    .unwrap()
}

#[test]
fn the_rules_of_a_pool_and_its_machine_configs_are_collected() {
    let pool: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": {ON_CHANGE: "none; /etc/x: reboot; /etc/x/y: run /bin/a; /etc/x/y: reload y.service"}},
        "spec": {},
    }))
    .unwrap();
    let mut rules = OnChangeRules::of_pool(&pool).unwrap();
    let names = ["/etc/nginx/nginx.conf", "/etc/nginx/sites/a", "nginx.service", "/etc/other"];
    let first =
        config("50-web", "/etc/nginx: reload nginx.service; nginx.service: restart nginx.service");
    rules.add(&first, &names).unwrap();
    let rule = |rules: &OnChangeRules, name: &str| -> String {
        match (rules.own(name), rules.closest(name)) {
            (Some(own), _) => format!("{} {}", own.machine_config, shown(&own.actions[0])),
            (None, Some(rule)) => rule.actions.iter().map(shown).collect::<Vec<_>>().join(", "),
            (None, None) => String::new(),
        }
    };
    for (name, expected) in [
        ("/etc/nginx/sites/a", "50-web Reload nginx.service"),
        ("nginx.service", "50-web Restart nginx.service"),
        ("/etc/other", "None"),
        ("/etc/xy", "None"),
        ("/etc/x/z", "Reboot"),
        ("/etc/x/y", "Run /bin/a, Reload y.service"),
    ] {
        assert_eq!(rule(&rules, name), expected, "{name}");
    }
    // A later MachineConfig replaces the file, and with it its rule.
    rules.end(&BTreeSet::from(["/etc/nginx/sites/a"]));
    assert_eq!(rule(&rules, "/etc/nginx/sites/a"), "None");
    rules.add(&config("60-all", "reboot"), &["/etc/nginx/sites/a"]).unwrap();
    assert_eq!(rule(&rules, "/etc/nginx/sites/a"), "60-all Reboot");
    // They survive the annotation, and what cannot be read counts as none.
    let mut rendered = config("rendered-web-1", "");
    let written = rules.to_annotation().unwrap().unwrap();
    let key = crate::api::names::annotation::machinist::ON_CHANGE_RULES;
    rendered.metadata.annotations.get_or_insert_default().insert(key.to_owned(), written);
    assert_eq!(OnChangeRules::from_rendered(&rendered), rules);
    rendered.metadata.annotations.get_or_insert_default().insert(key.to_owned(), "{".to_owned());
    assert_eq!(OnChangeRules::from_rendered(&rendered), OnChangeRules::default());
    assert_eq!(OnChangeRules::default().to_annotation(), Ok(None));
}

#[test]
fn an_entry_for_a_file_of_another_machine_config_is_refused() {
    let mut rules = OnChangeRules::default();
    let error = rules.add(&config("50-web", "/etc/other: none"), &["/etc/nginx.conf"]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"/etc/other\": is no file or unit of this MachineConfig"), "{text}");
    let many: Vec<String> = (0..9000).map(|number| format!("/etc/a-long-name/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    rules.add(&config("50-web", "none"), &many).unwrap();
    assert!(matches!(rules.to_annotation(), Err(OnChangeError::RulesTooLarge(_))));
}
