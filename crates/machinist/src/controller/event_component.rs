//! The names under which the controller's loops report events. They are MCO's.

use crate::kubernetes::events::EventComponent;

/// The render loop.
pub(super) const RENDER: EventComponent =
    EventComponent("machineconfigcontroller-rendercontroller");
/// The generate loop.
pub(super) const GENERATE: EventComponent =
    EventComponent("machineconfigcontroller-generatecontroller");
/// The rollout and the drain loop: MCO's node controller is both.
pub(super) const NODE: EventComponent = EventComponent("machineconfigcontroller-nodecontroller");
