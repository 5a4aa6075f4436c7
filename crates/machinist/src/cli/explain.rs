//! `machinist explain`: the sources of entries in a rendered config.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::Args;
use machinist_core::api::MachineConfig;
use machinist_core::generate::generate;
use machinist_core::generate::overridden::overridden;
use machinist_core::generated_config::reconcile::{is_generated, with_ownership};
use machinist_core::profile::TemplateProfile;
use machinist_core::render::provenance::{Contribution, ProvenanceItem, provenance};
use machinist_core::render::render;
use machinist_core::template::builtin_templates;
use serde::Serialize;

use super::generate_inputs::GenerateInputs;
use super::output::{DIMMED, HEADING, OutputFormat};
use super::pool_inputs::{PoolArgs, find};
use super::{CommandOutcome, output};

/// Show which MachineConfig a file, unit or argument of a pool comes from, and what it overrides
///
/// Without -f, the pool of the API server is explained. Without a name, all entries of the rendered config are listed with their sources. MachineConfigs that
/// would be generated from image mirrors, image policies and settings in the inputs are included.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist explain --pool worker -f examples/chrony.yaml /etc/chrony.conf\n\nMore examples:\n  machinist explain --pool worker /etc/chrony.conf"
)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    inputs: PoolArgs,

    /// The path of a file, a unit, a drop-in as UNIT/DROP-IN, a user, a kernel argument or a field
    #[arg(value_name = "FILE-OR-UNIT")]
    name: Option<String>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

#[derive(Serialize)]
struct ExplainReport<'a> {
    rendered: &'a str,
    items: Vec<ProvenanceItem>,
}

impl ExplainArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = self.inputs.documents()?;
        let mut inputs = find(&documents, &self.inputs.pool)?;
        let generated = GenerateInputs::find(&documents)?;
        add_generated(&mut inputs.machine_configs, &generated);
        for file in overridden(&inputs.pool, &inputs.machine_configs, is_generated)? {
            output::print_warning(&file.message());
        }
        let controller_config = inputs.controller_config.as_ref();
        let rendered = render(&inputs.pool, &inputs.machine_configs, inputs.image_inputs())?;
        let cc_name = controller_config.map(|cc| cc.metadata.name.as_deref().unwrap_or_default());
        let mut items = provenance(&rendered, cc_name);
        if let Some(name) = &self.name {
            let drop_ins = format!("{name}/");
            items.retain(|item| {
                item.name == *name
                    || item.kind == machinist_core::render::provenance::ProvenanceKind::Dropin
                        && item.name.starts_with(&drop_ins)
            });
            if items.is_empty() {
                bail!(
                    "{name} is not in {}: list its entries with machinist explain --pool {}",
                    rendered.name,
                    self.inputs.pool
                );
            }
        }
        match self.output {
            OutputFormat::Json => {
                output::print_json(&ExplainReport { rendered: &rendered.name, items })?;
            }
            OutputFormat::Text if self.name.is_some() => {
                output::print(&details(&rendered.name, &items))?;
            }
            OutputFormat::Text => output::print(&overview(&rendered.name, &items))?,
        }
        Ok(CommandOutcome::Done)
    }
}

/// Adds the MachineConfigs that would be generated from the inputs, unless the inputs contain them.
fn add_generated(machine_configs: &mut Vec<MachineConfig>, inputs: &GenerateInputs) {
    let templates = builtin_templates(TemplateProfile::Kubernetes);
    let made = generate(&inputs.sources(&templates));
    for error in &made.errors {
        output::print_warning(&format!("cannot generate from this input: {error}"));
    }
    for generated in made.generated {
        let config = generated.machine_config;
        if !machine_configs.iter().any(|given| given.metadata.name == config.metadata.name) {
            machine_configs.push(with_ownership(config, "generated", None));
        }
    }
}

fn overview(rendered: &str, items: &[ProvenanceItem]) -> String {
    let mut text = format!("{HEADING}{rendered}{HEADING:#}\n");
    let width = items.iter().map(|item| item.name.chars().count()).max().unwrap_or_default();
    let width = width.min(60);
    for item in items {
        let sources: Vec<&str> =
            item.contributions.iter().rev().map(|c| c.source.as_str()).collect();
        let (last, earlier) = sources.split_first().unwrap_or((&"", &[]));
        let over = if earlier.is_empty() {
            String::new()
        } else {
            format!("{DIMMED} over {}{DIMMED:#}", earlier.join(", "))
        };
        // Writing to a String cannot fail, here and below.
        let kind = item.kind.to_string();
        let _ = writeln!(text, "  {kind:<15} {:<width$}  {last}{over}", item.name);
    }
    text
}

fn details(rendered: &str, items: &[ProvenanceItem]) -> String {
    let mut text = String::new();
    for item in items {
        let _ = writeln!(text, "{HEADING}{}{HEADING:#} ({}) in {rendered}", item.name, item.kind);
        for (index, contribution) in item.contributions.iter().enumerate() {
            let _ =
                writeln!(text, "  {}", describe(contribution, &item.contributions[index + 1..]));
        }
    }
    text
}

fn describe(contribution: &Contribution, later: &[Contribution]) -> String {
    let mut parts = Vec::new();
    if let Some(kind) = contribution.displaced {
        parts.push(format!("made it a {kind}, which a later MachineConfig replaced"));
    }
    if !contribution.holds.is_empty() {
        parts.push(format!("decides {}", contribution.holds.join(", ")));
    }
    for field in contribution.overridden.iter().filter(|_| contribution.displaced.is_none()) {
        let by =
            later.iter().rev().find(|c| c.holds.contains(field) || c.overridden.contains(field));
        let by = by.map_or("a later one", |c| c.source.as_str());
        parts.push(format!("{field} overridden by {by}"));
    }
    if parts.is_empty() {
        parts.push("names it".to_owned());
    }
    format!("{}: {}", contribution.source, parts.join("; "))
}
