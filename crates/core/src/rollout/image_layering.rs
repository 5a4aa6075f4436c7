//! Pools with a layered image: a MachineOSConfig requests it and a MachineOSBuild builds it. Machines
//! get it only after the build, together with the config it was built for.

use crate::api::names::annotation;
use crate::api::{Condition, MachineConfigPool, MachineOSBuild, MachineOSConfig, find_condition};

use crate::node::{LayeredImage, RolloutTarget};

/// The progress of an image build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildProgress {
    Prepared,
    Building,
    Succeeded,
    Failed,
    Interrupted,
    Initial,
}

/// The layered image of a pool, if it has one.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolLayering<'a> {
    pub(super) config: Option<&'a MachineOSConfig>,
    pub(super) build: Option<&'a MachineOSBuild>,
}

impl<'a> PoolLayering<'a> {
    /// Finds the MachineOSConfig and MachineOSBuild of a pool. The build is the one that the
    /// MachineOSConfig names, if it is for the pool's present config, else any build for that config.
    #[must_use]
    pub fn for_pool(
        pool: &MachineConfigPool,
        configs: &[&'a MachineOSConfig],
        builds: &[&'a MachineOSBuild],
    ) -> Self {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let is_ours = |config: &&&MachineOSConfig| {
            config.spec.machine_config_pool.as_ref().is_some_and(|pool| pool.name == name)
        };
        let Some(config) = configs.iter().find(is_ours).copied() else { return Self::default() };
        let target = pool.target_config();
        let fits = |build: &&&MachineOSBuild| {
            let made_for = build.spec.machine_config.as_ref().map(|mc| mc.name.as_str());
            let of = build.spec.machine_os_config.as_ref().map(|mosc| mosc.name.as_str());
            made_for == Some(target) && of == config.metadata.name.as_deref()
        };
        let named = config.metadata.annotations.as_ref();
        let named = named.and_then(|a| a.get(annotation::CURRENT_MACHINE_OS_BUILD));
        let is_named = |build: &&&MachineOSBuild| build.metadata.name.as_ref() == named;
        let build = builds
            .iter()
            .filter(fits)
            .find(|build| named.is_some() && is_named(build))
            .or_else(|| builds.iter().find(fits))
            .copied();
        Self { config: Some(config), build }
    }

    /// The config and image that the pool's machines should have.
    #[must_use]
    pub fn target<'b>(&self, pool: &'b MachineConfigPool) -> RolloutTarget<'b>
    where
        'a: 'b,
    {
        let image = self.config.map(|_| LayeredImage {
            pull_spec: self.pull_spec(),
            config: self.build.map(built_for).unwrap_or_default(),
        });
        RolloutTarget { config: pool.target_config(), image }
    }

    /// Why machines have to wait for the image, if they do.
    #[must_use]
    pub fn wait_reason(&self) -> Option<String> {
        let config = self.config?;
        let Some(build) = self.build else {
            return Some("No MachineOSConfig or MachineOSBuild for this pool".to_owned());
        };
        match build_progress(build) {
            BuildProgress::Succeeded if self.pull_spec().is_empty() => {
                Some("Desired image not set in MachineOSConfig".to_owned())
            }
            BuildProgress::Succeeded if pushed_image(build) != self.pull_spec() => Some(format!(
                "Image built successfully, pullspec: {}, but MachineOSConfig {:?} has not updated yet",
                pushed_image(build),
                config.metadata.name.as_deref().unwrap_or_default(),
            )),
            BuildProgress::Succeeded => None,
            BuildProgress::Prepared => Some("Image build pending".to_owned()),
            BuildProgress::Building => Some("Image build in progress".to_owned()),
            BuildProgress::Failed => {
                let name = build.metadata.name.as_deref().unwrap_or_default();
                Some(format!("image build for MachineConfigPool {name} failed"))
            }
            BuildProgress::Interrupted | BuildProgress::Initial => {
                Some("Image is not ready yet".to_owned())
            }
        }
    }

    pub(super) fn pull_spec(&self) -> &'a str {
        let status = self.config.and_then(|config| config.status.as_ref());
        status.and_then(|status| status.current_image_pull_spec.as_deref()).unwrap_or_default()
    }

    /// Whether the image is being built, failed to build, or is built but not yet in the
    /// MachineOSConfig. No machine is up to date then.
    pub(super) fn is_building(&self) -> bool {
        let Some(build) = self.build.filter(|_| self.config.is_some()) else { return false };
        match build_progress(build) {
            BuildProgress::Prepared | BuildProgress::Building | BuildProgress::Failed => true,
            BuildProgress::Succeeded => {
                !pushed_image(build).is_empty() && pushed_image(build) != self.pull_spec()
            }
            BuildProgress::Interrupted | BuildProgress::Initial => false,
        }
    }
}

fn built_for(build: &MachineOSBuild) -> &str {
    build.spec.machine_config.as_ref().map(|config| config.name.as_str()).unwrap_or_default()
}

fn pushed_image(build: &MachineOSBuild) -> &str {
    let status = build.status.as_ref();
    status.and_then(|status| status.digested_image_push_spec.as_deref()).unwrap_or_default()
}

/// The progress of a build. The conditions are checked in MCO's order.
pub(super) fn build_progress(build: &MachineOSBuild) -> BuildProgress {
    let conditions = build.status.as_ref().and_then(|status| status.conditions.as_deref());
    let is = |type_| {
        find_condition(conditions.unwrap_or_default(), type_).is_some_and(Condition::is_true)
    };
    if is("Prepared") {
        BuildProgress::Prepared
    } else if is("Building") {
        BuildProgress::Building
    } else if is("Succeeded") {
        BuildProgress::Succeeded
    } else if is("Failed") {
        BuildProgress::Failed
    } else if is("Interrupted") {
        BuildProgress::Interrupted
    } else {
        BuildProgress::Initial
    }
}
