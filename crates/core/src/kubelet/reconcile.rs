//! What the controller has to write and delete for KubeletConfigs.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;

use super::base::{BaseError, KubeletSources, base_configuration};
use super::check::{KubeletConfigError, check, check_for_pool};
use super::machine_config::generate;
use super::settings_file::BaseConfiguration;
use crate::api::names::{annotation, label};
use crate::api::{KubeletConfig, MachineConfig, MachineConfigPool};
use crate::generated_config::naming::{AssignedNames, ConfigNaming, NamedSource};
use crate::generated_config::{GenerateError, GeneratedConfig};

/// How the MachineConfigs of KubeletConfigs are named.
pub const KUBELET_NAMING: ConfigNaming = ConfigNaming {
    kind: "KubeletConfig",
    infix: "kubelet",
    limit_message: "max number of supported kubelet config (10) has been reached. Please delete old \
               kubelet configs before retrying",
};

/// The input of [`reconcile`].
#[derive(Debug, Clone, Copy)]
pub struct KubeletSnapshot<'a> {
    /// All KubeletConfigs.
    pub configs: &'a [&'a KubeletConfig],
    /// All pools.
    pub pools: &'a [&'a MachineConfigPool],
    /// All MachineConfigs.
    pub machine_configs: &'a [&'a MachineConfig],
    /// The sources of base configurations.
    pub sources: KubeletSources<'a>,
    /// Whether there is a FeatureGate `cluster`.
    pub has_feature_gate: bool,
    /// The version of the controller.
    pub version: &'a str,
}

/// The desired objects of a KubeletConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeletConfigPlan {
    /// The MachineConfigs, one for each pool.
    pub generated: Vec<GeneratedConfig>,
    /// The number for its annotation.
    pub suffix: String,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its MachineConfigs that have to be deleted.
    pub remove: Vec<String>,
}

/// What is deleted together with a KubeletConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletConfigRemoval {
    /// Its MachineConfigs.
    pub remove: Vec<String>,
    /// The finalizers that remain afterwards: foreign ones.
    pub finalizers: Vec<String>,
}

/// The plans for all KubeletConfigs, in input order. A KubeletConfig applies to all of its pools or to
/// none: on an error the pools keep what they have.
#[must_use]
pub fn reconcile(snapshot: &KubeletSnapshot<'_>) -> Vec<Result<KubeletConfigPlan, GenerateError>> {
    let members: Vec<NamedSource<'_>> =
        snapshot.configs.iter().map(|config| naming_source(config)).collect();
    let exists = |name: &str| find(snapshot, name).is_some();
    let names = KUBELET_NAMING.assign(&members, snapshot.pools, exists);
    let mut bases = BaseConfigurations::default();
    let all = snapshot.configs.iter().zip(names);
    all.map(|(config, names)| plan(snapshot, &mut bases, config, names)).collect()
}

/// The base configurations, computed once per pool.
#[derive(Default)]
struct BaseConfigurations(BTreeMap<String, Result<BaseConfiguration, BaseError>>);

impl BaseConfigurations {
    fn of(
        &mut self,
        snapshot: &KubeletSnapshot<'_>,
        pool: &str,
    ) -> Result<&BaseConfiguration, BaseError> {
        let known = self
            .0
            .entry(pool.to_owned())
            .or_insert_with(|| base_configuration(&snapshot.sources, pool));
        known.as_ref().map_err(Clone::clone)
    }
}

fn plan(
    snapshot: &KubeletSnapshot<'_>,
    bases: &mut BaseConfigurations,
    config: &KubeletConfig,
    names: Result<AssignedNames, GenerateError>,
) -> Result<KubeletConfigPlan, GenerateError> {
    check(config).map_err(|error| error.for_object(config))?;
    let names = names?;
    let mut generated = Vec::new();
    for pool in KUBELET_NAMING.pools(&naming_source(config), snapshot.pools)? {
        let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
        let Some(name) = names.by_pool.get(pool_name) else { continue };
        let made = for_pool(snapshot, bases, config, pool, name)
            .map_err(|error| error.for_object(config))?;
        generated.push(made);
    }
    let wanted: Vec<String> = names.by_pool.into_values().collect();
    Ok(KubeletConfigPlan {
        finalizers: finalizers(config, &wanted),
        remove: no_longer_wanted(snapshot, config, &wanted),
        suffix: names.suffix,
        generated,
    })
}

fn for_pool(
    snapshot: &KubeletSnapshot<'_>,
    bases: &mut BaseConfigurations,
    config: &KubeletConfig,
    pool: &MachineConfigPool,
    name: &str,
) -> Result<GeneratedConfig, KubeletConfigError> {
    check_for_pool(config, pool)?;
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    let mut made = generate(config, pool, name, bases.of(snapshot, pool)?)?;
    let metadata = &mut made.machine_config.metadata;
    metadata.owner_references = Some(vec![owner(config)]);
    metadata.annotations = Some(
        [(annotation::GENERATED_BY_CONTROLLER_VERSION.to_owned(), snapshot.version.to_owned())]
            .into(),
    );
    mark_profile(&mut made.machine_config, &snapshot.sources);
    Ok(made)
}

/// Says which built-in profile a MachineConfig starts from, so that it is removed with the profile.
pub(super) fn mark_profile(machine_config: &mut MachineConfig, sources: &KubeletSources<'_>) {
    if let Some(profile) = sources.templates.profile() {
        let annotations = machine_config.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::machinist::PROFILE.to_owned(), profile.as_str().to_owned());
    }
}

/// What is deleted together with a KubeletConfig.
#[must_use]
pub fn removal(snapshot: &KubeletSnapshot<'_>, config: &KubeletConfig) -> KubeletConfigRemoval {
    let given = config.metadata.finalizers.clone().unwrap_or_default();
    let (ours, others): (Vec<String>, Vec<String>) =
        given.into_iter().partition(|name| KUBELET_NAMING.is_own_finalizer(name));
    let mut remove: Vec<String> =
        ours.into_iter().filter(|name| find(snapshot, name).is_some()).collect();
    for name in no_longer_wanted(snapshot, config, &[]) {
        if !remove.contains(&name) {
            remove.push(name);
        }
    }
    KubeletConfigRemoval { remove, finalizers: others }
}

/// Generated MachineConfigs whose source no longer exists: for 97 and 98 the pool or the cluster
/// object, for 99 the owning KubeletConfig, and for all of them the profile that they start from.
#[must_use]
pub fn orphaned_configs(snapshot: &KubeletSnapshot<'_>) -> Vec<String> {
    let has_pool = |pool: &str| {
        snapshot.pools.iter().any(|known| known.metadata.name.as_deref() == Some(pool))
    };
    let has_owner = |machine_config: &MachineConfig| {
        owner_uids(machine_config).any(|uid| {
            snapshot.configs.iter().any(|config| config.metadata.uid.as_deref() == Some(uid))
        })
    };
    let mut bases = BTreeMap::new();
    // Whether the templates of now say nothing about the kubelets of a role. Those of others are left alone.
    let mut lacks_base = |machine_config: &MachineConfig| {
        let labels = machine_config.metadata.labels.as_ref();
        let role = labels.and_then(|all| all.get(label::ROLE)).cloned().unwrap_or_default();
        *bases.entry(role).or_insert_with_key(|role| {
            snapshot.sources.templates.is_empty()
                || matches!(
                    base_configuration(&snapshot.sources, role),
                    Err(BaseError::NoFile { .. })
                )
        })
    };
    let mut is_left = |machine_config: &&&MachineConfig| {
        let name = machine_config.metadata.name.as_deref().unwrap_or_default();
        let annotations = machine_config.metadata.annotations.as_ref();
        let has = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
        let is_generated = has(annotation::GENERATED_BY_CONTROLLER_VERSION);
        let pool = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix("-generated-kubelet");
        let has_source = match (pool("97-"), pool("98-")) {
            (Some(pool), _) => has_pool(pool) && snapshot.sources.node.is_some(),
            (_, Some(pool)) => has_pool(pool) && snapshot.has_feature_gate,
            _ => !KUBELET_NAMING.is_name(name) || has_owner(machine_config),
        };
        let is_of_kubelet = name.contains("-generated-kubelet");
        let is_of_old_profile =
            is_of_kubelet && has(annotation::machinist::PROFILE) && lacks_base(machine_config);
        is_generated && (!has_source || is_of_old_profile)
    };
    let left = snapshot.machine_configs.iter().filter(|it| is_left(it));
    left.filter_map(|machine_config| machine_config.metadata.name.clone()).collect()
}

/// MachineConfigs of a KubeletConfig for pools that it no longer selects.
fn no_longer_wanted(
    snapshot: &KubeletSnapshot<'_>,
    config: &KubeletConfig,
    wanted: &[String],
) -> Vec<String> {
    let Some(uid) = config.metadata.uid.as_deref() else { return Vec::new() };
    snapshot
        .machine_configs
        .iter()
        .filter(|machine_config| owner_uids(machine_config).any(|owner| owner == uid))
        .filter_map(|machine_config| machine_config.metadata.name.clone())
        .filter(|name| KUBELET_NAMING.is_name(name) && !wanted.contains(name))
        .collect()
}

fn owner_uids(machine_config: &MachineConfig) -> impl Iterator<Item = &str> {
    machine_config.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str())
}

/// Foreign finalizers, then the names of the generated MachineConfigs.
fn finalizers(config: &KubeletConfig, wanted: &[String]) -> Vec<String> {
    let given = config.metadata.finalizers.iter().flatten();
    let others = given.filter(|name| !KUBELET_NAMING.is_own_finalizer(name));
    others.chain(wanted).cloned().collect()
}

fn find<'a>(snapshot: &KubeletSnapshot<'a>, name: &str) -> Option<&'a MachineConfig> {
    let mut all = snapshot.machine_configs.iter();
    all.find(|known| known.metadata.name.as_deref() == Some(name)).copied()
}

fn naming_source(config: &KubeletConfig) -> NamedSource<'_> {
    NamedSource {
        metadata: &config.metadata,
        selector: config.spec.machine_config_pool_selector.as_ref(),
    }
}

fn owner(config: &KubeletConfig) -> OwnerReference {
    OwnerReference {
        api_version: KubeletConfig::api_version(&()).into_owned(),
        kind: KubeletConfig::kind(&()).into_owned(),
        name: config.metadata.name.clone().unwrap_or_default(),
        uid: config.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
