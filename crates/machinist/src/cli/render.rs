//! `machinist render`: the rendered config of a pool.

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::render::{MAX_RENDERED_BYTES, render};

use super::pool_inputs::PoolArgs;
use super::{CommandOutcome, output};

/// Render a pool: merge its MachineConfigs into one
///
/// Without -f, the objects of the API server are rendered, as the controller does. Otherwise the inputs contain
/// the MachineConfigPool, MachineConfigs (those that the pool does not select are
/// ignored) and, optionally, the ControllerConfig with the default OS images, or the OSImageStream with
/// those that pools can select. Name and content of the result are those that MCO would produce.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist render --pool worker -f examples/chrony.yaml -o name"
)]
pub(super) struct RenderArgs {
    #[command(flatten)]
    inputs: PoolArgs,

    /// The output format; `name` prints only the name
    #[arg(short, long, value_enum, default_value_t = RenderOutputFormat::Yaml)]
    output: RenderOutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RenderOutputFormat {
    Yaml,
    Json,
    Name,
}

impl RenderArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let inputs = self.inputs.read()?;
        let controller_config = inputs.controller_config.as_ref();
        let rendered = render(&inputs.pool, &inputs.machine_configs, inputs.image_inputs())?;
        for (machine_config, report) in &rendered.warnings {
            for entry in &report.entries {
                output::print_warning(&format!(
                    "MachineConfig {machine_config}: spec.config: {entry}"
                ));
            }
        }
        let version = concat!("machinist-", env!("CARGO_PKG_VERSION"));
        let object = rendered.into_object(&inputs.pool, controller_config, version)?;
        let size = serde_json::to_vec(&object)?.len();
        if size > MAX_RENDERED_BYTES / 5 * 4 {
            output::print_warning(&format!(
                "the rendered config has {size} of at most {MAX_RENDERED_BYTES} bytes"
            ));
        }
        match self.output {
            RenderOutputFormat::Yaml => output::print_yaml(&object)?,
            RenderOutputFormat::Json => output::print_json(&object)?,
            RenderOutputFormat::Name => {
                output::print(&format!("{}\n", object.metadata.name.unwrap_or_default()))?;
            }
        }
        Ok(CommandOutcome::Done)
    }
}
