//! One pass: observes everything and applies everything once. Called by the loop in `mod.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use anyhow::{Error, Result, ensure};
use machinist_core::api::names::{annotation, object};
use machinist_core::operator::bootstrap_token::DesiredBootstrapToken;
use machinist_core::operator::component_order::{
    ComponentStatus, OperatorComponent, updatable_components,
};
use machinist_core::operator::components::{ClusterEndpoints, ComponentInputs};
use machinist_core::operator::conditions::OperatorFailure;
use machinist_core::operator::controller_config::{ClusterFacts, controller_config, server_names};
use machinist_core::operator::settings::OperatorSettings;
use machinist_core::operator::{
    self as core, ManagementState, events::OperatorEvent, repair_report,
};
use machinist_hub::failure_log::{FailureLog, FailureState};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::caches::{self, OperatorCaches, get_optional};
use super::metrics::OperatorMetrics;
use super::report::MACHINE_CONFIGURATIONS_PATH;
use super::write::ApplyWriter;
use super::{OperatorOptions, bootstrap_token, certificates};
use crate::kubernetes::events::Recorder;
use crate::kubernetes::request::ACCEPT_METADATA;

/// The tasks under which failures are reported.
const RECONCILE: &str = "reconcile";
const READ_NAMESPACE: &str = "read the own namespace";
const WRITE_STATUS: &str = "write the operator status";
/// The note if the address of the API server for machines is unknown.
const NO_SERVER: &str = "the machine config server is not running: set \
                         apiServerURL in ConfigMap machinist-settings";
/// The note while machines are in the middle of an update.
const RELEASES_MACHINES: &str = "spec.managementState is Removed: the components go when every machine is out of its \
                                 drain; a machine that stays there needs machinist rollout status";

/// An operator during one term of leadership.
#[derive(Debug)]
pub(super) struct Operator {
    pub(super) writer: ApplyWriter,
    pub(super) caches: OperatorCaches,
    pub(super) namespace: String,
    pub(super) release: String,
    pub(super) image: String,
    pub(super) reporters: OperatorReporters,
    /// Objects that have existed: one that is missing now was deleted by somebody else.
    existing: Mutex<BTreeSet<ManagedObject>>,
    /// Whether the change to this release was reported.
    pub(super) release_reported: AtomicBool,
}

/// An object that is repaired, and reported, when somebody changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ManagedObject {
    ControllerConfig,
    Component(OperatorComponent),
}

/// Where the operator reports. A clone shares it.
#[derive(Debug, Clone)]
pub(super) struct OperatorReporters {
    pub(super) events: Recorder,
    pub(super) failures: FailureLog,
    pub(super) metrics: OperatorMetrics,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct ReconcileReport {
    /// The wanted components and their state.
    pub(super) components: Vec<(OperatorComponent, ComponentStatus)>,
    /// What went wrong.
    pub(super) failure: Option<OperatorFailure>,
    /// A note for the condition.
    pub(super) note: Option<&'static str>,
    /// Whether the pass has to be repeated soon, although nothing failed.
    pub(super) is_waiting: bool,
    /// The release that the controller had before the pass.
    pub(super) previous_release: Option<String>,
}

/// Names the task in which a pass failed.
trait TaskContext<T> {
    fn in_task(self, task: &'static str) -> Result<T, OperatorFailure>;
}

impl<T, E: Into<Error>> TaskContext<T> for Result<T, E> {
    fn in_task(self, task: &'static str) -> Result<T, OperatorFailure> {
        self.map_err(|error| OperatorFailure { task, message: format!("{:#}", error.into()) })
    }
}

impl Operator {
    pub(super) fn new(
        writer: ApplyWriter,
        options: &OperatorOptions,
        image: &str,
        caches: OperatorCaches,
        reporters: OperatorReporters,
    ) -> Self {
        Self {
            writer,
            caches,
            namespace: options.namespace.clone(),
            release: options.release.clone(),
            image: image.to_owned(),
            reporters,
            existing: Mutex::default(),
            release_reported: AtomicBool::new(false),
        }
    }

    /// Runs one pass. Returns whether it succeeded.
    pub(super) async fn reconcile(&self) -> bool {
        let failures = &self.reporters.failures;
        let owner = match self.owner().await {
            Ok(Some(owner)) => owner,
            // We are being uninstalled: nothing is created again.
            Ok(None) => return true,
            Err(error) => {
                failures.failed(READ_NAMESPACE, &self.namespace, &format!("{error:#}"));
                return false;
            }
        };
        failures.succeeded(READ_NAMESPACE, &self.namespace);
        let mut done = ReconcileReport::default();
        if let Err(failure) = self.reconcile_components(&owner, &mut done).await {
            failures.failed(RECONCILE, "", &format!("{}: {}", failure.task, failure.message));
            done.failure = Some(failure);
        } else {
            failures.succeeded(RECONCILE, "");
        }
        let succeeded = done.failure.is_none() && !done.is_waiting;
        self.reporters.metrics.record_pass(done.failure.as_ref().map(|failure| failure.task));
        match self.write_status(&owner, &done).await {
            Ok(()) => {
                failures.succeeded(WRITE_STATUS, "");
                succeeded
            }
            Err(error) => {
                let error = format!("{error:#}");
                if failures.failed(WRITE_STATUS, "", &error) == FailureState::BecamePersistent {
                    self.report_write_failure(&error);
                }
                false
            }
        }
    }

    /// The owner of objects outside of the namespace; none while the namespace is being deleted.
    async fn owner(&self) -> Result<Option<Value>> {
        let namespace =
            get_optional(&self.writer.client, &format!("/api/v1/namespaces/{}", self.namespace))
                .await?;
        let uid = namespace["metadata"]["uid"].as_str();
        let is_going = !namespace["metadata"]["deletionTimestamp"].is_null();
        Ok(uid.filter(|_| !is_going).map(|uid| core::owner_reference(&self.namespace, uid)))
    }

    async fn reconcile_components(
        &self,
        owner: &Value,
        done: &mut ReconcileReport,
    ) -> Result<(), OperatorFailure> {
        let own = self.caches.machine_configurations.get(object::CLUSTER);
        if own.is_none() {
            self.create_machine_configuration(owner).await.in_task("Apply")?;
        }
        let spec = own.as_ref().map(|own| &own.spec);
        let management =
            ManagementState::from_spec(spec.and_then(|spec| spec.management_state.as_deref()));
        // Until the settings are read, all components are wanted.
        done.components = self.component_statuses(&OperatorComponent::ALL);
        let controller = OperatorComponent::Controller;
        done.previous_release = self.caches.component_status(&self.namespace, controller).release;
        let settings = OperatorSettings::read(
            &self.caches.config_map_data(&self.namespace, core::SETTINGS_CONFIG_MAP),
        );
        let settings = settings.in_task("Settings")?;
        if let Some(name) = &settings.server_token {
            let path = format!("/api/v1/namespaces/{}/secrets/{name}", self.namespace);
            let secret = get_optional(&self.writer.client, &path).await.in_task("Observe")?;
            settings.check_token(&secret).in_task("Settings")?;
        }
        let cluster =
            caches::read_cluster(&self.writer.client, &self.caches, &self.namespace).await;
        let cluster = cluster.in_task("Observe")?;
        let mut inputs = ComponentInputs {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            release: self.release.clone(),
            log_filter: core::log_filter(spec.and_then(|spec| spec.log_level.as_deref()))
                .to_owned(),
            endpoint: None,
            is_removal: false,
            settings,
        };
        if inputs.settings.server {
            inputs.endpoint = endpoint(&inputs.settings, &cluster);
            done.note = inputs.endpoint.is_none().then_some(NO_SERVER);
        }
        done.components = self.component_statuses(&inputs.desired_components());
        match management {
            ManagementState::Unmanaged => {
                done.note =
                    Some("nothing is kept as it should be: spec.managementState is Unmanaged");
                return Ok(());
            }
            ManagementState::Removed => {
                done.components.clear();
                if self.releases_machines(&mut inputs).await? {
                    done.note = Some(RELEASES_MACHINES);
                    done.is_waiting = true;
                    return Ok(());
                }
                done.note = Some("nothing is deployed: spec.managementState is Removed");
                return self.remove_components(&inputs, &OperatorComponent::ALL).await;
            }
            ManagementState::Managed => {}
        }
        for pool in core::pools(owner) {
            let name = pool["metadata"]["name"].as_str().unwrap_or_default();
            if self.caches.pools.get(name).is_none() {
                self.writer.create(&pool).await.in_task("Apply")?;
            }
        }
        let bundle = self.reconcile_server_certificates(&inputs).await.in_task("Certificates")?;
        self.reconcile_bootstrap_token(&inputs, &cluster, &done.components)
            .await
            .in_task("BootstrapToken")?;
        let mut failed = Ok(());
        if self.may_write_controller_config(&done.components) {
            // The components do not wait for it.
            failed = self.write_controller_config(&inputs, &cluster, &bundle, owner).await;
        }
        for part in updatable_components(&done.components, &self.release) {
            self.apply_component(&inputs, part).await.in_task("Apply")?;
        }
        let wanted = inputs.desired_components();
        let others: Vec<OperatorComponent> =
            OperatorComponent::ALL.into_iter().filter(|part| !wanted.contains(part)).collect();
        self.remove_components(&inputs, &others).await?;
        done.components = self.component_statuses(&wanted);
        failed.in_task("ControllerConfig")
    }

    /// Lets the controller withdraw drains and uncordon machines before it is removed. Returns whether it has to.
    async fn releases_machines(
        &self,
        inputs: &mut ComponentInputs,
    ) -> Result<bool, OperatorFailure> {
        let part = OperatorComponent::Controller;
        if !self.caches.component_status(&self.namespace, part).present {
            return Ok(false);
        }
        let nodes = self.writer.client.get_as("/api/v1/nodes", ACCEPT_METADATA).await;
        if core::machines_in_drain(&nodes.in_task("Apply")?).is_empty() {
            return Ok(false);
        }
        inputs.is_removal = true;
        self.apply_component(inputs, part).await.in_task("Apply")?;
        Ok(true)
    }

    async fn create_machine_configuration(&self, owner: &Value) -> Result<()> {
        self.writer.create(&core::machine_configuration(owner)).await?;
        // Events of this pass are about this object, and the watch may be late.
        let path = format!("{MACHINE_CONFIGURATIONS_PATH}/{}", object::CLUSTER);
        let created = get_optional(&self.writer.client, &path).await?;
        self.caches.machine_configurations.upsert(serde_json::from_value(created)?);
        Ok(())
    }

    /// Keeps the certificates of the machine config server, if there is one. Returns the CAs that machines trust.
    async fn reconcile_server_certificates(&self, inputs: &ComponentInputs) -> Result<String> {
        let Some(endpoint) = &inputs.endpoint else { return Ok(String::new()) };
        let names = server_names(&endpoint.server, &inputs.settings.server_names);
        let report = |event: &OperatorEvent| self.report_event(event);
        let done = certificates::reconcile_certificates(
            &self.writer,
            &self.namespace,
            &names,
            inputs.settings.certificate_overlap,
            &report,
        )
        .await?;
        self.reporters.metrics.set_certificate_expirations(&done.expirations);
        Ok(done.bundle)
    }

    /// Keeps the token with which new machines request their certificates, if a server gives it to them.
    async fn reconcile_bootstrap_token(
        &self,
        inputs: &ComponentInputs,
        cluster: &ClusterFacts,
        components: &[(OperatorComponent, ComponentStatus)],
    ) -> Result<()> {
        if inputs.endpoint.is_none() {
            self.reporters.metrics.set_token_expiration(None);
            return Ok(());
        }
        let desired = DesiredBootstrapToken {
            namespace: self.namespace.clone(),
            lifetime: inputs.settings.bootstrap_token_lifetime,
            ca: cluster.api_ca.clone(),
        };
        let is_server_rolled_out = components.iter().any(|(part, status)| {
            *part == OperatorComponent::Server && status.is_rolled_out(&self.release)
        });
        let report = |event: &OperatorEvent| self.report_event(event);
        let expires = bootstrap_token::reconcile_bootstrap_token(
            &self.writer,
            &desired,
            is_server_rolled_out,
            &report,
        )
        .await?;
        self.reporters.metrics.set_token_expiration(Some(expires));
        Ok(())
    }

    fn component_statuses(
        &self,
        parts: &[OperatorComponent],
    ) -> Vec<(OperatorComponent, ComponentStatus)> {
        parts
            .iter()
            .map(|part| (*part, self.caches.component_status(&self.namespace, *part)))
            .collect()
    }

    /// Whether the ControllerConfig of this release may be written: only once its controller runs, since an older controller
    /// could not read it. Within a release it is always written, so that certificates stay current.
    fn may_write_controller_config(&self, parts: &[(OperatorComponent, ComponentStatus)]) -> bool {
        let Some(found) = self.caches.controller_configs.get(object::CONTROLLER_CONFIG) else {
            return true;
        };
        let annotations = found.metadata.annotations.as_ref();
        let release = annotations.and_then(|all| all.get(annotation::RELEASE_IMAGE_VERSION));
        let arrived = |(part, seen): &(OperatorComponent, ComponentStatus)| {
            *part == OperatorComponent::Controller && seen.is_rolled_out(&self.release)
        };
        release == Some(&self.release) || parts.iter().any(arrived)
    }

    async fn write_controller_config(
        &self,
        inputs: &ComponentInputs,
        cluster: &ClusterFacts,
        bundle: &str,
        owner: &Value,
    ) -> Result<()> {
        ensure!(
            !cluster.api_ca.is_empty(),
            "ConfigMap kube-root-ca.crt has no ca.crt: kube-controller-manager has to put the CA of the API there"
        );
        let wanted = controller_config(inputs, cluster, bundle, owner);
        let found = self.caches.controller_config();
        let written = self.writer.apply(&wanted).await?;
        self.report_repair(ManagedObject::ControllerConfig, &wanted, found.as_ref(), &written);
        self.caches.controller_configs.upsert(serde_json::from_value(written)?);
        Ok(())
    }

    async fn apply_component(
        &self,
        inputs: &ComponentInputs,
        part: OperatorComponent,
    ) -> Result<()> {
        let (wanted, found) =
            (inputs.manifest(part), self.caches.component_object(&self.namespace, part));
        let written = self.writer.apply(&wanted).await?;
        self.report_repair(ManagedObject::Component(part), &wanted, found.as_ref(), &written);
        match part {
            OperatorComponent::Controller => {
                self.caches.deployments.upsert(serde_json::from_value(written)?);
            }
            OperatorComponent::Server | OperatorComponent::Daemon => {
                self.caches.daemon_sets.upsert(serde_json::from_value(written)?);
            }
        }
        Ok(())
    }

    /// Reports what applying an object changed, if anything.
    fn report_repair(
        &self,
        thing: ManagedObject,
        wanted: &Value,
        found: Option<&Value>,
        written: &Value,
    ) {
        let existed = !self.existing().insert(thing);
        if let Some(event) = repair_report::apply_event(wanted, found, written, existed) {
            if event.warning {
                self.reporters.metrics.count_repair();
            }
            self.report_event(&event);
        }
    }

    fn existing(&self) -> MutexGuard<'_, BTreeSet<ManagedObject>> {
        self.existing.lock()
    }

    async fn remove_components(
        &self,
        inputs: &ComponentInputs,
        parts: &[OperatorComponent],
    ) -> Result<(), OperatorFailure> {
        for part in parts {
            // Our own removal is no deletion by somebody else.
            self.existing().remove(&ManagedObject::Component(*part));
            if self.caches.component_status(&self.namespace, *part).present {
                self.writer.delete(&inputs.manifest(*part)).await.in_task("Apply")?;
            }
        }
        Ok(())
    }
}

/// Where machines reach the cluster: as set, else as the cluster describes itself.
fn endpoint(settings: &OperatorSettings, cluster: &ClusterFacts) -> Option<ClusterEndpoints> {
    let api_server = settings.api_server_url.clone().or_else(|| cluster.api_server())?;
    let server = settings.server_url.clone().or_else(|| cluster.server(&api_server))?;
    Some(ClusterEndpoints { api_server, server })
}
