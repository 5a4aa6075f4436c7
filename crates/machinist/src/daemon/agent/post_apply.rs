//! What is to be done after a change, and its end.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::operator::DisruptionAction;
use machinist_core::daemon::actions::{self, SystemdAction};
use machinist_core::daemon::{PendingChange, annotations, reports};
use machinist_core::node::NodeView;
use machinist_core::os::layered_image;

use super::super::state::DiskState;
use super::super::systemd::{Systemd, TransientUnit};
use super::health_gate::HealthOutcome;
use super::os::BootedOs;
use super::{Agent, NextReconcile};

/// The unit that restarts the machine.
const REBOOT_UNIT: &str = "machine-config-daemon-reboot";

impl Agent {
    /// Does what a change has left to be done. What fails takes the change back.
    pub(super) async fn run_actions(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let Some(mut pending) = state.pending else { return Ok(NextReconcile::Immediately) };
        self.set_sigterm_protection(node, true);
        let staged = self.stage_os(Some(node), &mut pending).await;
        if pending.is_way_back && staged.is_err() {
            // There is nothing to go back to from here: it is tried again.
            self.set_sigterm_protection(node, false);
            return staged.map(|()| NextReconcile::Immediately);
        }
        let done = match staged {
            Ok(()) => self.run_pending_actions(node, &pending).await,
            error => error,
        };
        if let Err(error) = done {
            let error = self.undo_change(node, &pending, error).await;
            if let Ok(Some(systemd)) = Systemd::connect(self.disk.path()).await {
                // Units may be as they were: systemd has to know.
                let _ = systemd.daemon_reload().await;
            }
            self.set_sigterm_protection(node, false);
            return Err(error);
        }
        // Not written down: to reload a service once more after a crash does no harm.
        self.actions_run_for = Some(pending.config);
        self.set_sigterm_protection(node, false);
        Ok(NextReconcile::Immediately)
    }

    async fn run_pending_actions(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
    ) -> Result<()> {
        let systemd = Systemd::connect(self.disk.path()).await?;
        if let Some(systemd) = systemd.as_ref().filter(|_| !pending.needs_reboot(&self.boot_id)) {
            // Enabling and disabling is known to systemd only after this, whatever the policy says.
            systemd.daemon_reload().await?;
        }
        for action in &pending.actions {
            let doing = actions::systemd_action(action);
            if doing == SystemdAction::Nothing {
                continue;
            }
            let (word, config) = (actions::action_name(action), &pending.config);
            tracing::info!("Performing post config change action: {word} for config {config}");
            self.run_action(node, pending, action, doing, systemd.as_ref()).await?;
        }
        Ok(())
    }

    async fn run_action(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        action: &DisruptionAction,
        doing: SystemdAction,
        systemd: Option<&Systemd>,
    ) -> Result<()> {
        let systemd = || systemd.ok_or_else(|| anyhow!("systemd does not run here"));
        match doing {
            SystemdAction::Nothing => {}
            SystemdAction::LogNoAction => {
                self.reporter.event(node, "SkipReboot", "Config changes do not require reboot.");
                self.reporter.write_status(node, reports::no_post_actions());
                tracing::info!("Node has Desired Config {}, skipping reboot", pending.config);
            }
            SystemdAction::Reboot => self.reboot(node, pending, systemd()?).await?,
            SystemdAction::Reload(service) => {
                let done = systemd()?.reload(&service).await;
                self.report_reload(node, &service, done)?;
            }
            SystemdAction::DaemonReload => {
                let done = systemd()?.daemon_reload().await;
                self.report_reload(node, "daemon-reload", done)?;
            }
            SystemdAction::Restart(service) => {
                if let Err(error) = systemd()?.restart(&service).await {
                    let text = format!("Restarting {service} service failed. Error: {error:#}");
                    self.reporter.warn(node, "FailedServiceRestart", text);
                    let what = "could not apply update: restarting";
                    return Err(anyhow!("{what} {service} service failed. Error: {error:#}"));
                }
                let text = "Config changes do not require reboot. Service";
                let text = format!("{text} {service} was restarted.");
                self.reporter.event(node, "ServiceRestart", text);
                tracing::info!("{service} service restarted successfully!");
            }
            SystemdAction::Unknown(_) => {
                let word = actions::action_name(action);
                return Err(anyhow!(
                    "NodeDisruptionPolicy: this version does not know the action {word}: use Reboot"
                ));
            }
        }
        Ok(())
    }

    fn report_reload(&mut self, node: &Arc<Node>, service: &str, done: Result<()>) -> Result<()> {
        if let Err(error) = done {
            let text = format!("Reloading service {service} failed. Error: {error:#}");
            self.reporter.warn(node, "FailedServiceReload", text);
            let what = "could not apply update: reloading";
            return Err(anyhow!("{what} {service} configuration failed. Error: {error:#}"));
        }
        self.reporter.write_status(node, reports::reloaded(service));
        let text = format!("Config changes do not require reboot. Service {service} was reloaded.");
        self.reporter.event(node, "ServiceReload", text);
        tracing::info!("{service} service reloaded successfully!");
        Ok(())
    }

    /// Restarts the machine.
    async fn reboot(
        &mut self,
        node: &Arc<Node>,
        pending: &PendingChange,
        systemd: &Systemd,
    ) -> Result<()> {
        self.reporter.write_status(node, reports::rebooting());
        tracing::info!("Rebooting node");
        self.set_sigterm_protection(node, false);
        let reason = format!("Node will reboot into config {}", pending.config);
        self.reporter.event(node, "Reboot", reason.as_str());
        tracing::info!("initiating reboot: {reason}");
        if let Err(error) = self.own_node.annotate(annotations::rebooting(true)).await {
            tracing::warn!("{error:#}");
        }
        self.reporter.flush().await;
        if let Some(heart) = &self.heartbeat {
            heart.report_shutdown().await;
        }
        self.order_reboot(systemd, &reason)
            .await
            .inspect_err(|_| self.metrics.count_failed_reboot())?;
        self.reboot_ordered = true;
        tracing::info!("reboot successful");
        Ok(())
    }

    /// Restarts the machine without telling anybody: nobody can be told.
    pub(super) async fn reboot_unreported(&mut self, reason: &str) -> Result<()> {
        let systemd = Systemd::connect(self.disk.path()).await?;
        let systemd = systemd.ok_or_else(|| anyhow!("systemd does not run here"))?;
        tracing::info!("initiating reboot: {reason}");
        self.order_reboot(&systemd, reason).await?;
        self.reboot_ordered = true;
        Ok(())
    }

    async fn order_reboot(&self, systemd: &Systemd, reason: &str) -> Result<()> {
        // What is staged is put in place on the way down.
        let finalizer: Vec<&str> = self.os_backend.finalize_unit().into_iter().collect();
        let description = format!("machine-config-daemon: {reason}");
        let unit = TransientUnit {
            name: REBOOT_UNIT,
            description: &description,
            command: &["/bin/sh", "-c", "systemctl reboot"],
            requires: &finalizer,
            after: &finalizer,
        };
        systemd.run_transient(&unit).await.map_err(|error| {
            tracing::error!("failed to run reboot: {error:#}");
            anyhow!("reboot command failed, something is seriously wrong")
        })
    }

    /// Compares the disk with its config, asks for work again, and says that all is done.
    pub(super) async fn finish_update(
        &mut self,
        node: &Arc<Node>,
        state: DiskState,
    ) -> Result<NextReconcile> {
        let current = self.current_config(node, &state).await?;
        let config = current.metadata.name.clone().unwrap_or_default();
        let image = layered_image(&current).map(str::to_owned);
        let starts = !self.is_checked;
        match self.check_booted_os(&current, state.pending.as_ref()).await {
            Ok(BootedOs::AsWanted) => {}
            Ok(BootedOs::NotStaged(again)) => {
                self.disk.set_pending(Some(*again)).await?;
                return Ok(NextReconcile::Immediately);
            }
            Ok(BootedOs::Failed(failing)) => {
                let pending = state.pending.context("a change that nobody remembers")?;
                return self.roll_back(node, current, pending, failing).await;
            }
            Err(error) => {
                if starts {
                    self.reporter.warn(node, "OnDiskStateValidationFailed", format!("{error:#}"));
                }
                return Err(error);
            }
        }
        if let Err(error) = self.check_drift(node, &current).await {
            if starts {
                self.reporter.warn(node, "OnDiskStateValidationFailed", format!("{error:#}"));
            }
            return Err(error);
        }
        if let Some(pending) = state.pending.as_ref().filter(|pending| !pending.is_way_back) {
            match self.check_health(&current).await? {
                HealthOutcome::Healthy => {}
                HealthOutcome::Unknown => return Ok(NextReconcile::Immediately),
                HealthOutcome::Unhealthy(failing) => {
                    return self.roll_back(node, current, pending.clone(), failing).await;
                }
            }
        }
        if state.current.is_none() && state.first_boot_annotations.is_some() {
            self.disk.adopt(current).await?;
        }
        for note in self.disk.end_first_boot().await? {
            tracing::warn!("{note}");
        }
        if state.pending.is_some() {
            self.reporter.write_status(node, reports::succeeded(&self.own_node.name));
        }
        self.reporter.write_status(node, reports::resumed(&config));
        if !annotations::is_uncordoned(node, &config) {
            self.own_node.annotate(annotations::request_uncordon(&config)).await?;
            let node = self.own_node.get();
            // Nobody answers at once; the next turn waits.
            if node.is_some_and(|node| !annotations::is_uncordoned(&node, &config)) {
                return Ok(NextReconcile::Immediately);
            }
        }
        if state.pending.is_some_and(|pending| pending.os.is_some()) {
            self.confirm_os().await;
        }
        self.mark_done(node, &config, image.as_deref()).await
    }

    async fn mark_done(
        &mut self,
        node: &Arc<Node>,
        config: &str,
        image: Option<&str>,
    ) -> Result<NextReconcile> {
        self.disk.set_pending(None).await?;
        (self.actions_run_for, self.healthy_on) = (None, None);
        self.disk.clear_failed_config().await?;
        // Who lacks the cluster's certificates is not done.
        self.refresh_certificates().await?;
        let done = annotations::done(config, image);
        if !annotations::changed_only(node, done.clone()).is_empty() {
            let text = format!("Update completed for config {config} and node has been uncordoned");
            self.reporter.event(node, "Uncordon", text);
            let name = &self.own_node.name;
            let text = format!("Setting node {name}, currentConfig {config} to Done");
            self.reporter.event(node, "NodeDone", text);
            let node = self.own_node.annotate(done).await?;
            let image = image.map(|image| format!(" / Image: {image}")).unwrap_or_default();
            tracing::info!("In desired state MachineConfig: {config}{image}");
            self.reporter.write_status(&node, reports::updated(name));
        }
        self.is_checked = true;
        self.failures = 0;
        let state = self.own_node.get().map(|node| NodeView(&node).state().to_owned());
        self.metrics.set_state(&state.unwrap_or_default(), "");
        self.metrics.set_updated(config, "");
        Ok(NextReconcile::Immediately)
    }
}
