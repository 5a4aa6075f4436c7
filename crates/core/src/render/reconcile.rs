//! What the controller has to write so that a pool has its rendered config. Usually nothing.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::api::names::{annotation, condition, object};
use crate::api::{
    Condition, ControllerConfig, MachineConfig, MachineConfigPool, PoolConfiguration,
    find_condition, selector,
};
use crate::profile::{TemplateProfile, profile_name};
use crate::reconcile_check::{IrreconcilableError, ValidationOverrides, check_reconcilable};

use super::{ImageSources, RenderError, render, render_sources};

/// The objects that rendering a pool depends on.
#[derive(Debug, Clone, Copy)]
pub struct RenderInputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// All MachineConfigs, including rendered ones.
    pub machine_configs: &'a [&'a MachineConfig],
    /// The sources of default images.
    pub system: ImageSources<'a>,
    /// The controller's version, written to the rendered config.
    pub version: &'a str,
    /// Changes that are allowed although they cannot be applied.
    pub overrides: ValidationOverrides,
}

/// What has to be written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RenderPlan {
    /// The name of the config that the sources render to.
    pub rendered: String,
    /// A rendered config to create.
    pub create: Option<MachineConfig>,
    /// A rendered config that was edited, with its correct content.
    pub repair: Option<MachineConfig>,
    /// The new `spec.configuration` of the pool.
    pub set_configuration: Option<PoolConfiguration>,
    /// The new rules of the rendered config for the cost of a change: an annotation, which is not part of its name.
    pub set_on_change: Option<Option<String>>,
    /// The sources of the parts of the rendered config, if they have changed: an annotation, too.
    pub set_sources: Option<String>,
    /// The profile that the annotation of the rendered config should name, if it does not.
    pub set_profile: Option<Option<String>>,
    /// Whether the rollback has ended: the sources no longer render to the config that the pool was
    /// rolled back from.
    pub end_rollback: bool,
    /// Whether an administrator's MachineConfig or annotation overrides the default OS image.
    pub os_image_overridden: bool,
    /// The pool whose annotation overrides it, if it is not a MachineConfig.
    pub annotated_by: Option<String>,
}

/// Why a pool has no new rendered config.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The pool's selector is empty.
    #[error(
        "This machineconfigpool is selecting all machineconfigs. A non-empty selector is required."
    )]
    EmptySelector,
    /// Something else has to happen first. Not an error of the pool.
    #[error("{0}")]
    NotYet(String),
    /// There is nothing to render, and never was.
    #[error("{0}; create a MachineConfig that it matches")]
    NothingToRender(String),
    /// The sources cannot be rendered.
    #[error("{0}")]
    Render(String),
    /// Machines cannot apply the result.
    #[error(
        "reconciliation failed between current config {current:?} and base config {culprit:?}: {reason}"
    )]
    IrreconcilableSource {
        /// The pool's present config.
        current: String,
        /// The MachineConfig without which machines could apply it.
        culprit: String,
        /// Why machines cannot apply it.
        reason: String,
    },
    /// Machines cannot apply the result, and no single MachineConfig is the cause.
    #[error("render reconciliation error: {0}")]
    Irreconcilable(#[from] IrreconcilableError),
    /// The pool was rolled back to a config that no longer exists.
    #[error(
        "the pool was rolled back to {0}, which does not exist; end the rollback with `machinist rollback --undo`"
    )]
    NoRollbackTarget(String),
}

/// Plans the writes for a pool.
pub fn reconcile(inputs: &RenderInputs<'_>) -> Result<RenderPlan, ReconcileError> {
    if let Some(reason) = inputs.system.controller_config.and_then(not_ready_reason) {
        return Err(ReconcileError::NotYet(reason));
    }
    match inputs.pool.spec.machine_config_selector.as_ref().map(selector::is_empty) {
        Some(true) => return Err(ReconcileError::EmptySelector),
        Some(false) => {}
        None => return Err(nothing_selected(inputs)),
    }
    let configs = || inputs.machine_configs.iter().copied();
    let rendered = match render(inputs.pool, configs(), inputs.system) {
        Ok(rendered) => rendered,
        Err(RenderError::NothingSelected { .. }) => {
            let empty = render_sources(inputs.pool, Vec::new(), inputs.system);
            let empty = empty.map_err(|error| render_error(&error))?;
            if !was_emptied(inputs, &empty.name) {
                return Err(nothing_selected(inputs));
            }
            empty
        }
        Err(error) if error.is_about_streams() => {
            return Err(ReconcileError::Render(error.to_string()));
        }
        Err(error) => return Err(render_error(&error)),
    };
    let name = rendered.name.clone();
    let sources: Vec<ObjectReference> =
        rendered.sources.iter().map(|s| source_reference(s.name())).collect();
    let os_image_overridden = rendered.os_image_overridden;
    let annotated = rendered.base.annotated.as_ref();
    let annotated = annotated.filter(|it| it.image == rendered.spec.os_image_url);
    let annotated_by = annotated.map(|it| it.pool.clone());
    let wanted = rendered
        .into_object(inputs.pool, inputs.system.controller_config, inputs.version)
        .map_err(|error| ReconcileError::Render(format!("size validation failed: {error}")))?;
    let by_name = |name: &str| configs().find(|mc| mc.metadata.name.as_deref() == Some(name));
    let existing = by_name(&name);
    let repair = existing
        .filter(|found| found.spec != wanted.spec)
        .map(|found| MachineConfig { metadata: found.metadata.clone(), ..wanted.clone() });
    let set_on_change = existing
        .filter(|found| on_change_rules(found) != on_change_rules(&wanted))
        .map(|_| on_change_rules(&wanted).map(str::to_owned));
    // One that another controller rendered has none, and is left as it is.
    let set_sources = existing
        .filter(|found| sources_of(found).is_some() && sources_of(found) != sources_of(&wanted))
        .and_then(|_| sources_of(&wanted).map(str::to_owned));
    let set_profile = existing
        .filter(|found| profile_name(found) != profile_name(&wanted))
        .map(|_| profile_name(&wanted).map(str::to_owned));
    let rollback = PoolRollback::from_annotations(inputs.pool);
    let end_rollback = rollback.as_ref().is_some_and(|rollback| rollback.from != name);
    let rollback = rollback.filter(|_| !end_rollback);
    let (target, sources) = match &rollback {
        None => (name.clone(), Some(sources)),
        Some(rollback) if by_name(&rollback.to).is_some() => (rollback.to.clone(), None),
        Some(rollback) => return Err(ReconcileError::NoRollbackTarget(rollback.to.clone())),
    };
    let now = inputs.pool.spec.configuration.clone().unwrap_or_default();
    let current = now.name.as_deref().unwrap_or_default();
    if current != target
        && rollback.is_none()
        && let Some(old) = by_name(current)
    {
        check_transition(inputs, old, &wanted)?;
    }
    let points = current == target && (sources.is_none() || now.source == sources);
    let point = (!points).then(|| PoolConfiguration {
        name: Some(target),
        source: sources,
        ..PoolConfiguration::default()
    });
    let create = existing.is_none().then_some(wanted);
    Ok(RenderPlan {
        rendered: name,
        create,
        repair,
        set_configuration: point,
        set_on_change,
        set_sources,
        set_profile,
        end_rollback,
        os_image_overridden,
        annotated_by,
    })
}

/// The rules of a rendered config for the cost of a change.
fn on_change_rules(config: &MachineConfig) -> Option<&str> {
    annotation_of(config, annotation::machinist::ON_CHANGE_RULES)
}

/// Where the parts of a rendered config come from.
fn sources_of(config: &MachineConfig) -> Option<&str> {
    annotation_of(config, annotation::machinist::SOURCES)
}

fn annotation_of<'a>(config: &'a MachineConfig, key: &str) -> Option<&'a str> {
    config.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A rollback of a pool to an earlier config. It lasts while the sources render to the config that
/// the pool was rolled back from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRollback {
    /// The config that the sources render to.
    pub from: String,
    /// The config that machines get instead.
    pub to: String,
}

impl PoolRollback {
    /// The rollback in a pool's annotations.
    #[must_use]
    pub fn from_annotations(pool: &MachineConfigPool) -> Option<Self> {
        let get = |key| pool.metadata.annotations.as_ref()?.get(key).cloned();
        let from = get(annotation::machinist::ROLLED_BACK_FROM)?;
        Some(Self { from, to: get(annotation::machinist::ROLLED_BACK_TO)? })
    }
}

/// Why the ControllerConfig cannot be used yet.
fn not_ready_reason(controller_config: &ControllerConfig) -> Option<String> {
    let status = controller_config.status.clone().unwrap_or_default();
    let generation = controller_config.metadata.generation.unwrap_or_default();
    let observed = status.observed_generation.unwrap_or_default();
    if observed != generation {
        return Some(format!(
            "status for ControllerConfig {} is being reported for {observed}, expecting it for {generation}",
            object::CONTROLLER_CONFIG
        ));
    }
    let conditions = status.conditions.unwrap_or_default();
    let is = |type_| find_condition(&conditions, type_).is_some_and(Condition::is_true);
    let completed = is(condition::controller_config::COMPLETED);
    let running = is(condition::controller_config::RUNNING);
    let failing = is(condition::controller_config::FAILING);
    (!completed || running || failing).then(|| {
        format!(
            "ControllerConfig has not completed: completed({completed}) running({running}) failing({failing})"
        )
    })
}

fn render_error(error: &RenderError) -> ReconcileError {
    ReconcileError::Render(format!("could not generate rendered MachineConfig: {error}"))
}

/// Whether a pool has lost all its MachineConfigs on purpose: those that its present config was rendered from have been
/// deleted. A changed label or selector is more likely a mistake, and must not take everything away from machines. Only
/// without templates: MCO's pools are never empty.
fn was_emptied(inputs: &RenderInputs<'_>, empty: &str) -> bool {
    let Some(now) = inputs.pool.spec.configuration.as_ref() else { return false };
    if inputs.system.controller_config.is_some_and(has_templates) {
        return false;
    }
    let is_there = |name: &str| {
        inputs.machine_configs.iter().any(|mc| mc.metadata.name.as_deref() == Some(name))
    };
    let sources: Vec<&str> =
        now.source.iter().flatten().filter_map(|source| source.name.as_deref()).collect();
    match sources.as_slice() {
        // It is empty already, or nobody knows what it was rendered from.
        [] => now.name.as_deref() == Some(empty),
        sources => now.name.is_some() && !sources.iter().any(|name| is_there(name)),
    }
}

/// No MachineConfig is selected: an error for a pool that had one, but normal in a new cluster.
fn nothing_selected(inputs: &RenderInputs<'_>) -> ReconcileError {
    let selector = inputs.pool.spec.machine_config_selector.as_ref();
    let selector = selector.map(selector::to_text).unwrap_or_default();
    let text = format!("no MachineConfigs found matching selector {selector}");
    let had_one = inputs.pool.spec.configuration.as_ref().is_some_and(|c| c.name.is_some());
    if had_one || inputs.system.controller_config.is_some_and(has_templates) {
        ReconcileError::Render(text)
    } else {
        ReconcileError::NothingToRender(text)
    }
}

/// Whether every pool has MachineConfigs from templates. Only an installation without templates has
/// none.
fn has_templates(config: &ControllerConfig) -> bool {
    profile_of(config) != Some(TemplateProfile::None)
}

/// Whether configs may declare any user. Machines of an installation with MCO's templates manage `core` alone;
/// elsewhere each machine decides, by the kind of its host.
#[must_use]
pub fn allows_any_user(controller_config: Option<&ControllerConfig>) -> bool {
    controller_config
        .is_none_or(|config| profile_of(config).is_some_and(TemplateProfile::is_beside_installer))
}

/// The built-in profile of an installation; `None` with MCO's templates or those of a user.
fn profile_of(config: &ControllerConfig) -> Option<TemplateProfile> {
    let annotations = config.metadata.annotations.as_ref();
    TemplateProfile::from_name(annotations?.get(annotation::machinist::PROFILE)?)
}

fn source_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("machineconfiguration.openshift.io/v1".to_owned()),
        kind: Some("MachineConfig".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Checks that running machines can apply the new config. The error names the one source without
/// which they could.
fn check_transition(
    inputs: &RenderInputs<'_>,
    old: &MachineConfig,
    new: &MachineConfig,
) -> Result<(), ReconcileError> {
    let overrides = ValidationOverrides {
        any_user: inputs.overrides.any_user || allows_any_user(inputs.system.controller_config),
        ..inputs.overrides
    };
    let Err(refusal) = check_reconcilable(old, new, overrides) else { return Ok(()) };
    let Ok(sources) = super::select(inputs.pool, inputs.machine_configs.iter().copied()) else {
        return Err(refusal.into());
    };
    for without in (0..sources.len()).rev() {
        let rest = sources.iter().enumerate().filter(|(n, _)| *n != without).map(|(_, mc)| *mc);
        let Ok(rendered) = render(inputs.pool, rest, inputs.system) else { continue };
        let controller_config = inputs.system.controller_config;
        let object = rendered.into_object(inputs.pool, controller_config, inputs.version);
        let Ok(object) = object else { continue };
        if check_reconcilable(old, &object, overrides).is_ok() {
            let name = |mc: &MachineConfig| mc.metadata.name.clone().unwrap_or_default();
            return Err(ReconcileError::IrreconcilableSource {
                current: name(old),
                culprit: name(sources[without]),
                reason: refusal.reason(),
            });
        }
    }
    Err(refusal.into())
}
