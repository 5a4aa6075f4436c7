//! Rendering: many MachineConfigs become one, under a name made from its content.
