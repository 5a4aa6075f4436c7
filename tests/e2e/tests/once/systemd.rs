//! What enabling, disabling and presetting means, compared to systemd itself over random systems.

use super::fixture::{apply, config, create_system, tree};
use machinist_e2e::{Lab, command};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A small generator with a seed, so that a failure can be reproduced.
struct UnitRandom(u64);

impl UnitRandom {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

const NAMES: [&str; 6] =
    ["a.service", "b.service", "c.timer", "d@.service", "d@x.service", "e.socket"];

fn unit(random: &mut UnitRandom) -> String {
    let mut text = "[Unit]\nDescription=x\n".to_owned();
    if random.below(5) > 0 {
        text.push_str("[Install]\n");
        for _ in 0..=random.below(2) {
            let line = random.pick(&[
                "WantedBy=multi-user.target",
                "WantedBy=multi-user.target graphical.target",
                "WantedBy=",
                "RequiredBy=basic.target",
                "Also=b.service",
                "Also=e.socket missing.service",
                "DefaultInstance=one",
                "# WantedBy=never.target",
                "WantedBy=multi-user.target \\\n  timers.target",
                "WantedBy=%p.target",
                "Alias=alias.service",
            ]);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn systemctl(root: &Path, verb: &str, unit: &str) -> bool {
    let mut systemctl = Command::new("systemctl");
    systemctl.arg(format!("--root={}", root.display())).args([verb, unit]);
    command::output(&mut systemctl).unwrap().succeeded()
}

fn is_enabled(root: &Path, unit: &str) -> bool {
    let mut systemctl = Command::new("systemctl");
    systemctl.arg(format!("--root={}", root.display())).args(["is-enabled", unit]);
    command::output(&mut systemctl).unwrap().stdout_trimmed() == "enabled"
}

/// `d@.service` for `d@x.service`.
fn template_of(name: &str) -> Option<String> {
    let (prefix, rest) = name.split_once('@')?;
    let (instance, suffix) = rest.split_once('.')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{suffix}"))
}

/// What MCO does with units, performed with systemctl, and with instances of templates as with other units. Returns
/// whether all calls succeeded.
fn apply_with_systemctl(root: &Path, units: &[Value]) -> bool {
    let dir = root.join("etc/systemd/system");
    let (mut enable, mut disable) = (Vec::new(), Vec::new());
    let known = |name: &str| {
        ["etc/systemd/system", "usr/lib/systemd/system"]
            .iter()
            .any(|place| root.join(place).join(name).symlink_metadata().is_ok())
    };
    let is_listed = |name: &str| {
        let template = template_of(name);
        let is_written = |unit: &Value| {
            template.as_deref().is_some_and(|template| unit["name"] == template)
                && unit["contents"].is_string()
        };
        known(name) || template.as_deref().is_some_and(known) || units.iter().any(is_written)
    };
    let listed: Vec<bool> =
        units.iter().map(|unit| is_listed(unit["name"].as_str().unwrap())).collect();
    for (unit, listed) in units.iter().zip(listed) {
        let name = unit["name"].as_str().unwrap();
        if let Some(contents) = unit["contents"].as_str() {
            if is_enabled(root, name) {
                systemctl(root, "disable", name);
            }
            fs::write(dir.join(name), contents).unwrap();
        }
        match unit["enabled"].as_bool() {
            None => {
                systemctl(root, "preset", name);
            }
            Some(wanted) if listed || unit["contents"].is_string() => {
                if wanted { &mut enable } else { &mut disable }.push(name);
            }
            Some(_) => {}
        }
    }
    enable.iter().all(|name| systemctl(root, "enable", name))
        && disable.iter().all(|name| systemctl(root, "disable", name))
}

#[test]
fn units_are_enabled_as_systemd_enables_them() {
    let count = std::env::var("MACHINIST_VALUES").ok().and_then(|text| text.parse().ok());
    let lab = Lab::new().unwrap();
    let (ours, theirs) = (lab.dir().join("ours"), lab.dir().join("theirs"));
    let mut compared = 0;
    for seed in 1..=count.unwrap_or(60) {
        let mut random = UnitRandom(seed);
        let vendor: Vec<(&str, String)> = NAMES
            .iter()
            .filter(|name| !name.contains("@x") && random.below(2) == 0)
            .map(|name| (*name, String::new()))
            .collect();
        let vendor: Vec<(&str, String)> =
            vendor.into_iter().map(|(name, _)| (name, unit(&mut random))).collect();
        let preset = random.pick(&[
            "",
            "enable *\n",
            "enable a.*\n",
            "enable d@.service one two\n",
            "disable b*\n",
        ]);
        let first = random.pick(&[None, Some("a.service"), Some("c.timer")]);
        for root in [&ours, &theirs] {
            let _ = fs::remove_dir_all(root);
            fs::create_dir(root).unwrap();
            create_system(root);
            for (name, text) in &vendor {
                fs::write(root.join("usr/lib/systemd/system").join(name), text).unwrap();
            }
            fs::write(root.join("etc/systemd/system-preset/10-first.preset"), preset).unwrap();
            if let Some(name) = first {
                systemctl(root, "enable", name);
            }
        }
        let mut units = Vec::new();
        for name in NAMES {
            let mut unit_of = json!({"name": name});
            if random.below(3) == 0 {
                unit_of["contents"] = json!(unit(&mut random));
            }
            match random.below(4) {
                0 => unit_of["enabled"] = json!(true),
                1 => unit_of["enabled"] = json!(false),
                2 => {}
                _ => continue,
            }
            units.push(unit_of);
        }
        let file = config(lab.dir(), "units", &json!({"systemd": {"units": units}}));
        let well = apply_with_systemctl(&theirs, &units);
        if !well {
            // MCO fails half-way there; we refuse before we write.
            let output = command::output(&mut super::fixture::once(&ours, &file)).unwrap();
            assert!(!output.succeeded(), "seed {seed}: systemd refuses: {units:#?} {vendor:#?}");
            continue;
        }
        apply(&ours, &file);
        let (ours, theirs) = (tree(&ours), tree(&theirs));
        let changes: Vec<String> = theirs
            .changes(&ours)
            .into_iter()
            .filter(|change| change.contains("/etc/systemd/system/"))
            .collect();
        assert_eq!(changes, Vec::<String>::new(), "seed {seed}: {preset:?} {units:#?} {vendor:#?}");
        compared += 1;
    }
    println!("{compared} systems compared");
}
