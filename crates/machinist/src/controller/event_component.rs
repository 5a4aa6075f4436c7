//! The names under which the controller's loops report events: MCO's, so that tools find them.

use crate::kubernetes::events::EventComponent;

/// The render loop.
pub(super) const RENDER: EventComponent =
    EventComponent("machineconfigcontroller-rendercontroller");
/// The generate loop.
pub(super) const GENERATE: EventComponent =
    EventComponent("machineconfigcontroller-generatecontroller");
/// The rollout and the drain loop: MCO's node controller is both.
pub(super) const NODE: EventComponent = EventComponent("machineconfigcontroller-nodecontroller");
/// The loop of a hub that keeps the MachineConfiguration, which MCO's operator does.
pub(super) const DISRUPTION_POLICY: EventComponent =
    EventComponent("machineconfigcontroller-disruptionpolicy");
/// The user-data loop, which MCO has not.
pub(super) const USER_DATA: EventComponent =
    EventComponent("machineconfigcontroller-userdatacontroller");
