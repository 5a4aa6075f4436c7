//! `machinist validate`: all problems in manifests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use machinist_core::api::crds;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use machinist_core::ignition::report::ReportSeverity;
use machinist_core::lint::{self, LintFinding};
use machinist_core::plan::unselected_message;
use machinist_core::render::{RenderError, render};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::output::{DIMMED, ERROR, OutputFormat, WARNING};
use super::pool_inputs::of_kind;
use super::schema_check::SchemaCache;
use super::{CommandOutcome, output};
use crate::manifests::{self, ManifestDocument};

/// Find all problems in manifests
///
/// Each problem is shown with file, document, object, field and remedy. Objects of Machinist's kinds are
/// checked against their schema and its rules, as an API server does. Pools in the manifests are rendered,
/// to find conflicts between MachineConfigs. The exit code is 1 if there is an error; warnings alone are
/// accepted.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist validate -f examples/")]
pub(super) struct ValidateArgs {
    /// The manifests: a file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// A finding with its location.
#[derive(Debug, Serialize)]
struct LocatedFinding {
    file: String,
    document: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<usize>,
    object: String,
    #[serde(flatten)]
    finding: LintFinding,
}

#[derive(Serialize)]
struct ValidateReport {
    objects: usize,
    errors: usize,
    warnings: usize,
    findings: Vec<LocatedFinding>,
}

impl ValidateArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let mut findings = Vec::new();
        let documents = self.read(&mut findings)?;
        check_duplicates(&documents, &mut findings);
        let known = crds::crds();
        let mut schemas = SchemaCache::default();
        for document in &documents {
            let found = check(document, &known, &mut schemas)?;
            findings.extend(found.into_iter().map(|finding| locate(document, finding)));
        }
        findings.extend(check_pools(&documents));
        let errors = findings.iter().filter(|located| located.finding.is_error()).count();
        let warnings = findings.len() - errors;
        let report = ValidateReport { objects: documents.len(), errors, warnings, findings };
        match self.output {
            OutputFormat::Json => output::print_json(&report)?,
            OutputFormat::Text => output::print(&text(&report))?,
        }
        Ok(if errors == 0 { CommandOutcome::Done } else { CommandOutcome::Failed })
    }

    /// Reads all files. A file that cannot be parsed is a finding like any other.
    fn read(&self, findings: &mut Vec<LocatedFinding>) -> Result<Vec<ManifestDocument>> {
        let mut documents = Vec::new();
        for text in manifests::read_paths(&self.filename)? {
            match manifests::parse(&text) {
                Ok(read) => documents.extend(read),
                Err(error) => findings.push(LocatedFinding {
                    file: text.file.display().to_string(),
                    document: 1,
                    item: None,
                    object: "file".to_owned(),
                    finding: LintFinding::error("(file)", format!("{error:#}"), "correct the file"),
                }),
            }
        }
        Ok(documents)
    }
}

fn locate(document: &ManifestDocument, finding: LintFinding) -> LocatedFinding {
    LocatedFinding {
        file: document.origin.file.display().to_string(),
        document: document.origin.document,
        item: document.origin.item,
        object: document.object_name(),
        finding,
    }
}

fn check_duplicates(documents: &[ManifestDocument], findings: &mut Vec<LocatedFinding>) {
    let mut seen: HashMap<(&str, &str, &str), &ManifestDocument> = HashMap::new();
    for document in documents.iter().filter(|document| !document.name().is_empty()) {
        let namespace = document.value.pointer("/metadata/namespace");
        let namespace = namespace.and_then(serde_json::Value::as_str).unwrap_or_default();
        if let Some(first) = seen.insert((document.kind(), namespace, document.name()), document) {
            let message = format!("the same object is also in {}", first.origin);
            let finding = LintFinding::error("metadata.name", message, "remove one of the two");
            findings.push(locate(document, finding));
        }
    }
}

/// The findings of one object by itself.
fn check(
    document: &ManifestDocument,
    known: &[CustomResourceDefinition],
    schemas: &mut SchemaCache,
) -> Result<Vec<LintFinding>> {
    let mut findings = Vec::new();
    for (field, value) in [("kind", document.kind()), ("apiVersion", document.api_version())] {
        if value.is_empty() {
            findings.push(LintFinding::error(field, "is missing", "add it"));
        }
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    let (group, version) = document.api_version().split_once('/').unwrap_or_default();
    let crd =
        known.iter().find(|crd| crd.spec.group == group && crd.spec.names.kind == document.kind());
    let Some(crd) = crd else {
        let is_ours = |crd: &&CustomResourceDefinition| {
            crd.spec.group == "machineconfiguration.openshift.io"
                && crd.spec.names.kind == document.kind()
        };
        let ours = known.iter().find(is_ours);
        return Ok(match ours {
            Some(crd) => {
                let right = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name);
                let message =
                    format!("{} is not the API version of this kind", document.api_version());
                vec![LintFinding::error("apiVersion", message, format!("write {right}"))]
            }
            None if lint::object(&document.value).iter().any(LintFinding::is_error) => {
                lint::object(&document.value)
            }
            None => vec![LintFinding::warning(
                "kind",
                format!("{} is not a kind that Machinist reads; ignored", document.kind()),
                "",
            )],
        });
    };
    if !crd.spec.versions.iter().any(|served| served.name == version) {
        let message = format!("version {version} of {} is unknown", document.kind());
        let remedy = format!("write {group}/{}", crd.spec.versions[0].name);
        return Ok(vec![LintFinding::error("apiVersion", message, remedy)]);
    }
    let mut findings = match document.kind() {
        "MachineConfig" => typed(document, |_: &MachineConfig| Vec::new()),
        "MachineConfigPool" => typed(document, |_: &MachineConfigPool| Vec::new()),
        "ControllerConfig" => typed(document, |_: &ControllerConfig| Vec::new()),
        _ => Vec::new(),
    };
    if findings.is_empty() {
        findings = lint::object(&document.value);
    }
    // The findings of the linter are more precise than those of the schema.
    let more = schemas.check(crd, version, &document.value)?;
    let is_reported =
        |field: &str| findings.iter().any(|found| found.is_error() && found.field == field);
    let more: Vec<LintFinding> = more.into_iter().filter(|one| !is_reported(&one.field)).collect();
    findings.extend(more);
    Ok(findings)
}

fn typed<T: DeserializeOwned>(
    document: &ManifestDocument,
    check: impl Fn(&T) -> Vec<LintFinding>,
) -> Vec<LintFinding> {
    match document.try_typed::<T>() {
        Ok(object) => check(&object),
        Err((field, problem)) => {
            vec![LintFinding::error(field, problem, "correct the type of the value")]
        }
    }
}

/// Renders the pools, to find problems between objects.
fn check_pools(documents: &[ManifestDocument]) -> Vec<LocatedFinding> {
    let machine_configs: Vec<MachineConfig> = of_kind(documents, "MachineConfig")
        .filter_map(|document| document.try_typed().ok())
        .collect();
    let mut findings = Vec::new();
    if machine_configs.is_empty() {
        return findings;
    }
    let pools: Vec<MachineConfigPool> = of_kind(documents, "MachineConfigPool")
        .filter_map(|document| document.try_typed().ok())
        .collect();
    // Without pools, nobody knows what they select.
    for document in of_kind(documents, "MachineConfig").filter(|_| !pools.is_empty()) {
        let Ok(config) = document.try_typed::<MachineConfig>() else { continue };
        let pools: Vec<&MachineConfigPool> = pools.iter().collect();
        if let Some(problem) = unselected_message(&config, &pools) {
            findings.push(locate(document, LintFinding::warning("metadata.labels", problem, "")));
        }
    }
    for document in of_kind(documents, "MachineConfigPool") {
        let Ok(pool) = document.try_typed::<MachineConfigPool>() else { continue };
        let finding = match render(&pool, &machine_configs, None) {
            // Problems of single objects are reported already.
            Ok(_)
            | Err(
                RenderError::Invalid { .. }
                | RenderError::EmptySelector { .. }
                | RenderError::InvalidSelector { .. },
            ) => continue,
            Err(error @ RenderError::NothingSelected { .. }) => LintFinding::warning(
                "spec.machineConfigSelector",
                error.to_string(),
                "correct the selector, or add the MachineConfigs",
            ),
            Err(error) => {
                LintFinding::error("spec", error.to_string(), "correct one of the MachineConfigs")
            }
        };
        findings.push(locate(document, finding));
    }
    findings
}

fn text(report: &ValidateReport) -> String {
    let mut text = String::new();
    for located in &report.findings {
        let finding = &located.finding;
        let style = if finding.severity == ReportSeverity::Error { ERROR } else { WARNING };
        let item = located.item.map_or_else(String::new, |item| format!(", item {item}"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{style}{}{style:#} {}: {}: {}\n    {DIMMED}{}, document {}{item}{DIMMED:#}",
            finding.severity,
            located.object,
            finding.field,
            finding.message,
            located.file,
            located.document,
        );
        if !finding.remedy.is_empty() {
            let _ = writeln!(text, "    remedy: {}", finding.remedy);
        }
    }
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let _ = writeln!(
        text,
        "{}: {}, {}",
        count(report.objects, "object"),
        count(report.errors, "error"),
        count(report.warnings, "warning")
    );
    text
}
