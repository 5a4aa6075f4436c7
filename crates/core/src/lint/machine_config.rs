//! Lints MachineConfigs.

use crate::api::MachineConfig;
use crate::api::names::{MAX_MACHINE_CONFIG_BYTES, label, object};
use crate::ignition::contents::remote_scheme;
use crate::ignition::schema::{Config, Resource};
use crate::on_change::OnChangeRules;
use crate::reconcile_check::{CORE_USER, FORCE_FILE};
use crate::validate::{MachineConfigProblem, check_extensions, validate_spec};

use super::{LintFinding, from_report};

/// The findings about a MachineConfig by itself.
#[must_use]
pub fn machine_config(machine_config: &MachineConfig) -> Vec<LintFinding> {
    let mut findings = metadata(machine_config);
    let spec = &machine_config.spec;
    match validate_spec(spec) {
        Err(MachineConfigProblem::Ignition(error)) => match error.report() {
            Some(report) => findings.extend(from_report(report)),
            None => findings.push(LintFinding::error(
                "spec.config",
                error.to_string(),
                "set spec.config.ignition.version to 3.5.0, or leave spec.config out",
            )),
        },
        Err(problem @ MachineConfigProblem::UnknownKernelType(_)) => {
            findings.push(plain("spec.kernelType", &problem));
        }
        Err(problem @ MachineConfigProblem::UnknownExtensions(_)) => {
            findings.push(plain("spec.extensions", &problem));
        }
        Err(problem @ MachineConfigProblem::UnsupportedMode { mode, .. }) => {
            let mut finding = plain("spec.config", &problem);
            if let Some(remedy) = decimal_mode(mode) {
                finding.remedy = remedy;
            }
            findings.push(finding);
        }
        Err(
            problem @ (MachineConfigProblem::UnpackedTooLarge(_)
            | MachineConfigProblem::OwnFile(_)
            | MachineConfigProblem::PathTooLong(_)),
        ) => {
            findings.push(plain("spec.config", &problem));
        }
        Err(problem @ MachineConfigProblem::OwnKernelArgument(_)) => {
            findings.push(plain("spec.kernelArguments", &problem));
        }
        Ok(None) => {
            // MCO ignores these without an Ignition config, but no image can install them either.
            if let Err(problem) = check_extensions(spec) {
                let message = problem.to_string();
                findings.push(LintFinding::warning("spec.extensions", message, "correct the name"));
            }
        }
        Ok(Some((config, report))) => {
            findings.extend(from_report(&report));
            findings.extend(size(machine_config));
            findings.extend(unusable_on_running_machines(&config));
            findings.extend(remote_contents(&config));
            findings.extend(doubtful_modes(&config));
            findings.extend(on_change(machine_config, &config));
        }
    }
    findings
}

fn plain(field: &str, problem: &MachineConfigProblem) -> LintFinding {
    let text = problem.to_string();
    let message = text.strip_prefix(&format!("{field}: ")).unwrap_or(&text);
    let (message, remedy) = match message.rsplit_once(" (") {
        Some((message, remedy)) => (message, remedy.trim_end_matches(')')),
        None => (message, "use permissions of at most 0777"),
    };
    LintFinding::error(field, message, remedy)
}

fn metadata(machine_config: &MachineConfig) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    let name = machine_config.metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        findings.push(LintFinding::error("metadata.name", "is missing", "give the object a name"));
    }
    let labels = machine_config.metadata.labels.as_ref();
    let has_role = labels.is_some_and(|labels| labels.contains_key(label::ROLE));
    if !has_role && !name.starts_with(object::RENDERED_PREFIX) {
        findings.push(LintFinding::warning(
            "metadata.labels",
            "missing role: no pool selects this MachineConfig by role",
            format!("add the label {}: worker (or the name of the pool)", label::ROLE),
        ));
    }
    findings
}

/// A MachineConfig that takes most of the space of a rendered config, which has those of its pool together.
fn size(machine_config: &MachineConfig) -> Option<LintFinding> {
    let size = serde_json::to_vec(machine_config).map_or(0, |bytes| bytes.len());
    (size > MAX_MACHINE_CONFIG_BYTES / 5 * 4).then(|| {
        LintFinding::warning(
            "spec.config",
            format!(
                "its size of {size} bytes is close to the limit of {MAX_MACHINE_CONFIG_BYTES} for the rendered config of a pool"
            ),
            "compress contents with gzip (compression: gzip), or fetch large files on the machine",
        )
    })
}

/// What the annotation about the cost of a change gets wrong.
fn on_change(machine_config: &MachineConfig, config: &Config) -> Option<LintFinding> {
    let files = config.storage.files.iter().map(|file| file.path.as_str());
    let names = files.chain(config.systemd.units.iter().map(|unit| unit.name.as_str()));
    let names: Vec<&str> = names.collect();
    OnChangeRules::default().add(machine_config, &names).err().map(|error| super::on_change(&error))
}

/// The remedy for a mode that looks octal and is read as decimal, as JSON and YAML have it.
fn decimal_mode(mode: i64) -> Option<String> {
    let octal = i64::from_str_radix(&mode.to_string(), 8).ok()?;
    let is_permission = (0o100..=0o777).contains(&octal);
    is_permission.then(|| format!("{mode} is decimal for {mode:#o}; write {octal} for 0{mode}"))
}

/// Modes that are permissions in both readings, and that hardly anybody means as decimal.
fn doubtful_modes(config: &Config) -> Vec<LintFinding> {
    let modes = |index: usize, mode: Option<i64>| {
        let mode = mode.filter(|mode| matches!(mode, 400 | 440 | 444 | 500))?;
        let field = format!("spec.config.storage.files[{index}].mode");
        let message = format!("{mode} looks octal and is decimal");
        Some(LintFinding::warning(field, message, decimal_mode(mode)?))
    };
    let files = config.storage.files.iter().enumerate();
    files.filter_map(|(index, file)| modes(index, file.mode)).collect()
}

/// Settings that render and boot, but that running machines refuse.
fn unusable_on_running_machines(config: &Config) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for (index, user) in config.passwd.users.iter().enumerate() {
        if user.name != CORE_USER {
            findings.push(LintFinding::warning(
                format!("spec.config.passwd.users[{index}].name"),
                format!(
                    "machines of OpenShift refuse users other than core, found {:?}",
                    user.name
                ),
                "manage other users of these machines from a unit, or only at first boot",
            ));
        }
    }
    for (field, is_set, message) in [
        (
            "directories",
            !config.storage.directories.is_empty(),
            "running machines refuse to change directories; only new machines get them",
        ),
        (
            "links",
            !config.storage.links.is_empty(),
            "running machines refuse to add or change links; only new machines get them",
        ),
    ] {
        if is_set {
            findings.push(LintFinding::warning(
                format!("spec.config.storage.{field}"),
                message,
                "make them from a unit or with a file in /etc/tmpfiles.d",
            ));
        }
    }
    for (index, file) in config.storage.files.iter().enumerate() {
        if !file.append.is_empty() {
            findings.push(LintFinding::warning(
                format!("spec.config.storage.files[{index}].append"),
                format!("running machines refuse to append to {}", file.path),
                "write the whole file, or a drop-in next to it",
            ));
        }
        if file.path == FORCE_FILE {
            findings.push(LintFinding::warning(
                format!("spec.config.storage.files[{index}].path"),
                format!("running machines refuse to write {FORCE_FILE}"),
                "create this file on the machine by hand if you need it",
            ));
        }
    }
    findings
}

/// A MachineConfig is static: remote contents may change without notice, and a running machine does
/// not fetch them at all.
fn remote_contents(config: &Config) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    let mut look = |field: String, resource: &Resource| {
        let Some(scheme) = resource.source.as_deref().and_then(remote_scheme) else { return };
        findings.push(LintFinding::warning(
            format!("{field}.source"),
            format!(
                "contents are fetched over {scheme}; a running machine does not fetch them and becomes degraded"
            ),
            "write the contents into the config as a data: URL",
        ));
    };
    for (index, file) in config.storage.files.iter().enumerate() {
        let field = format!("spec.config.storage.files[{index}]");
        look(format!("{field}.contents"), &file.contents);
        for (part, resource) in file.append.iter().enumerate() {
            look(format!("{field}.append[{part}]"), resource);
        }
    }
    for (index, luks) in config.storage.luks.iter().enumerate() {
        look(format!("spec.config.storage.luks[{index}].keyFile"), &luks.key_file);
    }
    let ignition = &config.ignition;
    look("spec.config.ignition.config.replace".to_owned(), &ignition.config.replace);
    for (index, resource) in ignition.config.merge.iter().enumerate() {
        look(format!("spec.config.ignition.config.merge[{index}]"), resource);
    }
    for (index, resource) in ignition.security.tls.certificate_authorities.iter().enumerate() {
        let field = format!("spec.config.ignition.security.tls.certificateAuthorities[{index}]");
        look(field, resource);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_annotation_about_the_cost_of_a_change_is_an_error() {
        for (on_change, expected) in [
            ("reload a.service", None),
            ("/etc/a: none", None),
            ("/etc/b: none", Some("is no file or unit of this MachineConfig")),
            ("reload a", Some("such as reload nginx.service")),
        ] {
            let config: MachineConfig = serde_json::from_value(json!({
                "metadata": {
                    "name": "a", "labels": {label::ROLE: "worker"},
                    "annotations": {"machinist.dev/on-change": on_change},
                },
                "spec": {"config": {
                    "ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/a"}]},
                }},
            }))
            .unwrap();
            let found = machine_config(&config);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{on_change}: {found:?}");
            for finding in found {
                assert!(finding.is_error() && finding.field.starts_with("metadata.annotations"));
                let text = finding.to_string();
                assert!(text.contains(expected.unwrap()), "{text}");
            }
        }
    }

    #[test]
    fn a_large_config_is_named_before_the_limit_of_its_pool_is_reached() {
        let findings = |bytes: usize| {
            let contents = json!({"source": format!("data:,{}", "x".repeat(bytes))});
            let config = json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "metadata": {"name": "a", "labels": {label::ROLE: "worker"}},
                "spec": {"config": {
                    "ignition": {"version": "3.5.0"},
                    "storage": {"files": [{"path": "/etc/a", "contents": contents}]},
                }},
            });
            let config: MachineConfig = serde_json::from_value(config).unwrap();
            machine_config(&config).iter().map(|it| it.message.clone()).collect::<Vec<_>>()
        };
        assert_eq!(findings(MAX_MACHINE_CONFIG_BYTES / 2), Vec::<String>::new());
        let found = findings(MAX_MACHINE_CONFIG_BYTES / 10 * 9);
        assert!(found.len() == 1 && found[0].contains("close to the limit"), "{found:?}");
    }
}
