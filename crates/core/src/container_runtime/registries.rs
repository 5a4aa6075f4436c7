//! Generates `99-<pool>-generated-registries` from mirrors, registry lists and image policies.

use std::hash::{Hash, Hasher};

use kube::ResourceExt as _;

use super::base_files::BaseFiles;
use super::image_policies::{ImagePolicies, ScopeConflict, policies};
use super::image_reference::ImageReference;
use super::mirrors::{self, MergedMirrors, MirrorEntry, PullBy, merge_mirrors};
use super::policy_json::{self, PolicyFile};
use super::registries_conf::{RegistriesConf, RegistryEdits, WildcardMirrorsError, edit};
use super::registries_d::registries_d;
use super::registry_lists::{self, RegistryLists};
use crate::api::config::{
    ClusterImagePolicy, Feature, FeatureGates, Image, ImageDigestMirrorSet, ImagePolicy,
    ImageSigstoreVerificationPolicy, ImageTagMirrorSet, RegistrySources,
};
use crate::api::names::object::{POOL_ARBITER, POOL_MASTER, POOL_WORKER};
use crate::api::names::{MAX_MACHINE_CONFIG_BYTES, label};
use crate::api::{ImageContentSourcePolicy, MachineConfig, MachineConfigPool, selector};
use crate::generated_config::{
    GenerateError, GeneratedConfig, GeneratedFile, SourceRef, machine_config,
};

/// The path of `registries.conf`.
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
/// The path of `policy.json`.
pub const POLICY_JSON: &str = "/etc/containers/policy.json";
const SIGSTORE_REGISTRIES_YAML: &str = "/etc/containers/registries.d/sigstore-registries.yaml";
const NAMESPACE_POLICIES: &str = "/etc/crio/policies";
const SEARCH_REGISTRIES_CONF: &str =
    "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";

/// The image settings of the cluster.
#[derive(Clone, Debug, Default)]
pub struct RegistryInputs<'a> {
    /// The Image config `cluster`.
    pub image: Option<&'a Image>,
    /// Mirrors for pulls by digest, in the deprecated form.
    pub content_source_policies: Vec<&'a ImageContentSourcePolicy>,
    /// Mirrors for pulls by digest.
    pub digest_mirror_sets: Vec<&'a ImageDigestMirrorSet>,
    /// Mirrors for pulls by tag.
    pub tag_mirror_sets: Vec<&'a ImageTagMirrorSet>,
    /// Signature policies of the cluster.
    pub cluster_image_policies: Vec<&'a ClusterImagePolicy>,
    /// Signature policies of namespaces.
    pub image_policies: Vec<&'a ImagePolicy>,
    /// The cluster's release image, if it has one.
    pub release_image: Option<&'a str>,
}

/// The generated MachineConfigs and what has to be reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegistriesOutput {
    /// A MachineConfig for each pool.
    pub generated: Vec<GeneratedConfig>,
    /// Scopes of ImagePolicies without effect.
    pub conflicts: Vec<ScopeConflict>,
    /// Set if a registry was not blocked because the cluster needs it for its own images. MCO continues
    /// silently; the controller reports it.
    pub release_not_blocked: Option<GenerateError>,
}

/// The name of the MachineConfig for a pool.
#[must_use]
pub fn machine_config_name(pool: &str) -> String {
    format!("99-{pool}-generated-registries")
}

/// The pools that get their own MachineConfig: the built-in ones, and others that inherit from none
/// of them. A custom pool inherits the MachineConfig of `worker`.
#[must_use]
pub fn target_pools<'p>(pools: &[&'p MachineConfigPool]) -> Vec<&'p MachineConfigPool> {
    let is_built_in = |pool: &&MachineConfigPool| pool.labels().contains_key(label::MCO_BUILT_IN);
    let mut roles = vec![POOL_MASTER.to_owned(), POOL_WORKER.to_owned(), POOL_ARBITER.to_owned()];
    roles.extend(pools.iter().filter(|pool| is_built_in(pool)).map(|pool| pool.name_any()));
    let takes = |pool: &MachineConfigPool, role: &str| {
        let labels = [(label::ROLE.to_owned(), role.to_owned())].into();
        let selector = pool.spec.machine_config_selector.as_ref();
        selector.is_some_and(|wanted| selector::matches(wanted, &labels).unwrap_or_default())
    };
    let has_own = |pool: &&&'p MachineConfigPool| {
        let name = pool.name_any();
        let inherits = roles.iter().any(|role| *role != name && takes(pool, role));
        is_built_in(pool) || !inherits && takes(pool, &name)
    };
    pools.iter().filter(has_own).copied().collect()
}

impl RegistryInputs<'_> {
    /// Drops the policies whose feature is off, as MCO does.
    #[must_use]
    pub fn with_features(mut self, features: FeatureGates<'_>) -> Self {
        if !features.is_on(Feature::SigstoreImageVerification) {
            self.cluster_image_policies.clear();
            self.image_policies.clear();
        }
        if !features.is_on(Feature::SigstoreImageVerificationPki) {
            let is_pki = |policy: &Option<ImageSigstoreVerificationPolicy>| {
                policy.as_ref().is_some_and(|policy| policy.root_of_trust.policy_type == "PKI")
            };
            self.cluster_image_policies.retain(|policy| !is_pki(&policy.spec.policy));
            self.image_policies.retain(|policy| !is_pki(&policy.spec.policy));
        }
        self
    }

    /// Hashes the identity and version of all objects. While the hash is unchanged, so is the output.
    pub fn hash_versions(&self, hasher: &mut impl Hasher) {
        fn all<'a, K: kube::Resource + 'a>(
            objects: impl IntoIterator<Item = &'a &'a K>,
            hasher: &mut impl Hasher,
        ) {
            for object in objects {
                let meta = object.meta();
                (&meta.name, &meta.namespace, &meta.uid, meta.generation).hash(hasher);
            }
            0u8.hash(hasher);
        }
        all(&self.image, hasher);
        all(&self.content_source_policies, hasher);
        all(&self.digest_mirror_sets, hasher);
        all(&self.tag_mirror_sets, hasher);
        all(&self.cluster_image_policies, hasher);
        all(&self.image_policies, hasher);
        self.release_image.hash(hasher);
    }

    /// The objects, each as `Kind name`.
    fn objects(&self) -> Vec<String> {
        fn named<'a, K: kube::Resource<DynamicType = ()> + 'a>(
            objects: impl IntoIterator<Item = &'a &'a K>,
        ) -> Vec<String> {
            objects.into_iter().map(|object| SourceRef::of(*object).to_string()).collect()
        }
        let mut objects = named(&self.image);
        objects.extend(named(&self.content_source_policies));
        objects.extend(named(&self.digest_mirror_sets));
        objects.extend(named(&self.tag_mirror_sets));
        objects.extend(named(&self.cluster_image_policies));
        objects.extend(named(&self.image_policies));
        objects
    }
}

/// The MachineConfigs of these pools, each given with its base files. Empty if there are no objects.
///
/// # Errors
/// An object is invalid. Nothing is generated then, and pools keep what they have.
pub fn generate(
    inputs: &RegistryInputs<'_>,
    pools: &[(&MachineConfigPool, BaseFiles)],
) -> Result<RegistriesOutput, GenerateError> {
    let from = inputs.objects();
    if from.is_empty() {
        return Ok(RegistriesOutput::default());
    }
    let plan = plan_registries(inputs)?;
    let mut made: Vec<(&BaseFiles, MachineConfig)> = Vec::new();
    let mut generated = Vec::with_capacity(pools.len());
    for (pool, base) in pools {
        // Most pools have the same base files.
        let known = made.iter().position(|(other, _)| *other == base);
        let at = match known {
            Some(at) => at,
            None => {
                let (name, role) = (machine_config_name(&pool.name_any()), pool.name_any());
                let files = check_size(plan.files(base)?, &name)?;
                made.push((base, machine_config(&name, &role, &files)));
                made.len() - 1
            }
        };
        let role = pool.name_any();
        let mut machine_config = made[at].1.clone();
        machine_config.metadata.name = Some(machine_config_name(&role));
        machine_config.labels_mut().insert(label::ROLE.to_owned(), role);
        generated.push(GeneratedConfig {
            machine_config,
            from: from.clone(),
            warnings: plan.warnings(),
        });
    }
    let release = plan.release.as_ref().map_or("it", |release| release.repository);
    let not_blocked = (!plan.lists.required_by_release.is_empty())
        .then(|| registry_lists::release_blocked_error(&plan.lists.required_by_release, release));
    Ok(RegistriesOutput {
        generated,
        conflicts: plan.policies.conflicts,
        release_not_blocked: not_blocked,
    })
}

/// Refuses files that are too large for the API server.
fn check_size(files: Vec<GeneratedFile>, name: &str) -> Result<Vec<GeneratedFile>, GenerateError> {
    // The size in base64.
    let size: usize = files.iter().map(|file| file.contents.len().div_ceil(3) * 4).sum();
    if size > MAX_MACHINE_CONFIG_BYTES {
        return Err(GenerateError {
            object: SourceRef::new("MachineConfig", name),
            field: "spec.config".to_owned(),
            message: format!("is too large ({size} bytes, max {MAX_MACHINE_CONFIG_BYTES} bytes)"),
            remedy: "mirror whole registries or namespaces instead of single repositories"
                .to_owned(),
        });
    }
    Ok(files)
}

/// The validated settings.
struct RegistriesPlan<'a> {
    sources: RegistrySources,
    entries: Vec<MirrorEntry<'a>>,
    digest: Vec<MergedMirrors<'a>>,
    tag: Vec<MergedMirrors<'a>>,
    lists: RegistryLists,
    policies: ImagePolicies,
    release: Option<ImageReference<'a>>,
    has_mirror_objects: bool,
}

fn plan_registries<'a>(inputs: &RegistryInputs<'a>) -> Result<RegistriesPlan<'a>, GenerateError> {
    let sources = inputs.image.and_then(|image| image.spec.registry_sources.clone());
    let sources = sources.unwrap_or_default();
    let (digest_sets, old) = (&inputs.digest_mirror_sets, &inputs.content_source_policies);
    let entries = mirrors::mirror_entries(digest_sets, old, &inputs.tag_mirror_sets)?;
    mirrors::check(&entries)?;
    let (digest, tag) =
        (merge_mirrors(&entries, PullBy::Digest), merge_mirrors(&entries, PullBy::Tag));
    // Only the lists of the Image config affect the release image.
    let release_image = inputs.release_image.filter(|_| inputs.image.is_some());
    let release = release_image.map(registry_lists::parse_release_image).transpose()?;
    let lists = registry_lists::registry_lists(&sources, release.as_ref(), &digest)
        .map_err(|problem| wildcard_error(&entries, &problem))?;
    registry_lists::check(&sources, &lists, release.as_ref())?;
    let policies = policies(&inputs.cluster_image_policies, &inputs.image_policies, &lists)?;
    let has_mirror_objects =
        !(digest_sets.is_empty() && old.is_empty() && inputs.tag_mirror_sets.is_empty());
    Ok(RegistriesPlan {
        sources,
        entries,
        digest,
        tag,
        lists,
        policies,
        release,
        has_mirror_objects,
    })
}

impl RegistriesPlan<'_> {
    /// The files of a pool with these base files.
    fn files(&self, base: &BaseFiles) -> Result<Vec<GeneratedFile>, GenerateError> {
        let conf = self.registries_conf(base)?;
        let policy = self.policy(base)?;
        let namespaces = &self.policies.namespaces;
        let scopes = self.policies.cluster.keys();
        let scopes = scopes.chain(namespaces.values().flat_map(|scopes| scopes.keys()));
        let sigstore = registries_d(scopes, conf.as_ref());
        let mut files = Vec::new();
        files.extend(conf.map(|conf| GeneratedFile::new(REGISTRIES_CONF, conf.text())));
        if let Some((_, text)) = &policy {
            files.push(GeneratedFile::new(POLICY_JSON, text.clone()));
        }
        files.extend(sigstore.map(|text| GeneratedFile::new(SIGSTORE_REGISTRIES_YAML, text)));
        for (namespace, scopes) in namespaces {
            let Some((policy, _)) = &policy else { continue };
            let text = policy_json::namespace_policy(policy, scopes).text();
            files.push(GeneratedFile::new(format!("{NAMESPACE_POLICIES}/{namespace}.json"), text));
        }
        if let Some(search) = &self.sources.container_runtime_search_registries {
            let conf = RegistriesConf { search: Some(search.clone()), ..RegistriesConf::default() };
            files.push(GeneratedFile::new(SEARCH_REGISTRIES_CONF, conf.text()));
        }
        Ok(files)
    }

    fn registries_conf(&self, base: &BaseFiles) -> Result<Option<RegistriesConf>, GenerateError> {
        let insecure = self.sources.insecure_registries.as_deref();
        if insecure.is_none() && self.lists.blocked.is_empty() && !self.has_mirror_objects {
            return Ok(None);
        }
        let mut conf = RegistriesConf::parse(&base.registries_conf)
            .map_err(|problem| template_file_error(REGISTRIES_CONF, problem.to_string()))?;
        let edits = RegistryEdits {
            digest: &self.digest,
            tag: &self.tag,
            insecure: insecure.unwrap_or_default(),
            blocked: &self.lists.blocked,
        };
        edit(&mut conf, &edits).map_err(|problem| wildcard_error(&self.entries, &problem))?;
        Ok(Some(conf))
    }

    /// The policy of the cluster and its text. A policy of a namespace alone leaves the text of the
    /// template as it is.
    fn policy(&self, base: &BaseFiles) -> Result<Option<(PolicyFile, String)>, GenerateError> {
        let nothing = self.lists.refused.is_empty()
            && self.lists.allowed.is_empty()
            && self.policies.cluster.is_empty()
            && self.policies.namespaces.is_empty();
        if nothing {
            return Ok(None);
        }
        let parsed = PolicyFile::parse(&base.policy_json)
            .map_err(|problem| template_file_error(POLICY_JSON, problem.to_string()))?;
        let changed = policy_json::cluster_policy(&parsed, &self.lists, &self.policies.cluster);
        Ok(Some(match changed {
            Some(policy) => {
                let text = policy.text();
                (policy, text)
            }
            None => (parsed, base.policy_json.clone()),
        }))
    }

    fn warnings(&self) -> Vec<String> {
        let conflicts = self.policies.conflicts.iter();
        conflicts
            .map(|conflict| {
                let ScopeConflict { namespace, name, .. } = conflict;
                format!("ImagePolicy {namespace}/{name}: spec.scopes: {}", conflict.message())
            })
            .collect()
    }
}

/// The error of an invalid base file.
fn template_file_error(path: &str, message: String) -> GenerateError {
    GenerateError {
        object: SourceRef::new("the templates", ""),
        field: path.to_owned(),
        message,
        remedy: "fix the template".to_owned(),
    }
}

fn wildcard_error(entries: &[MirrorEntry<'_>], problem: &WildcardMirrorsError) -> GenerateError {
    let WildcardMirrorsError { source, inside } = problem;
    let entry = entries.iter().find(|entry| entry.source == source);
    GenerateError {
        object: entry.map(|entry| entry.object.clone()).unwrap_or_default(),
        field: entry.map_or_else(String::new, |entry| format!("{}.source", entry.field)),
        message: format!(
            "the mirrors of {source:?} cannot be carried over to {inside:?} inside it"
        ),
        remedy: format!("give {inside:?} mirrors of its own"),
    }
}
