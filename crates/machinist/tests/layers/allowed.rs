//! The allowed edges between the top-level modules of each crate: module, and the modules it may use.
//!
//! Each table is ordered bottom-up: a module uses only modules above its line.

/// Module, and the modules it may use, separated by spaces.
pub(crate) type Table = &'static [(&'static str, &'static str)];

#[rustfmt::skip] // one module a line
pub(crate) const CORE: Table = &[
    // Vocabulary and helpers: API types and conversions that know no decision.
    ("api", ""),
    ("backup_schedule", ""),
    ("duration", ""),
    ("hex", ""),
    ("machine_report", ""),
    ("secrets", ""),
    ("versioned", ""),
    ("watchdog", ""),
    // Views and formats: one object or format each.
    ("go", "api"),
    ("migrate", "api"),
    ("node", "api"),
    ("profile", "api"),
    ("os", "api profile"),
    ("tls_profile", "api"),
    ("user_data", "api"),
    ("on_change", "api go"),
    ("ignition", "go"),
    ("redact", "hex ignition secrets"),
    // One MachineConfig: whether it is valid and whether a machine can take it.
    ("own_files", "api ignition"),
    ("validate", "api ignition own_files"),
    ("reconcile_check", "api ignition own_files validate"),
    ("lint", "api ignition on_change reconcile_check validate"),
    // Generators: other objects become MachineConfigs. They do not know each other, except that
    // kubelet starts from the templates.
    ("generated_config", "api ignition"),
    ("container_runtime", "api generated_config go ignition profile"),
    ("template", "api generated_config go hex ignition profile tls_profile"),
    ("kubelet", "api generated_config go template tls_profile"),
    // MachineConfigs become a pool's rendered config.
    ("render", "api go hex ignition on_change os profile reconcile_check validate"),
    ("generate", "api container_runtime generated_config kubelet os profile render template"),
    // A config on a machine: what a change means and does there.
    ("diff", "api hex ignition reconcile_check secrets"),
    ("apply", "api container_runtime go hex ignition os reconcile_check versioned"),
    ("disruption", "api container_runtime diff go ignition on_change os reconcile_check"),
    ("drift", "api apply diff ignition node secrets"),
    ("health", "api duration ignition versioned"),
    // A config on its way to machines.
    ("drain", "api node"),
    ("rollout", "api drain duration node"),
    ("serve", "api go hex ignition secrets"),
    ("metrics_access", "serve"),
    // Processes and commands: they combine the decisions above.
    ("daemon", "api diff disruption drift node os reconcile_check versioned"),
    ("certificates", "api apply daemon"),
    ("adopt", "api diff render"),
    ("plan", "api apply diff disruption ignition node os reconcile_check render rollout"),
    ("bootstrap", "api container_runtime generate generated_config go kubelet render"),
    ("operator", "api drift go node profile rollout serve user_data"),
];

#[rustfmt::skip] // one module a line
pub(crate) const HUB: Table = &[
    // Formats and helpers that know no Kubernetes object.
    ("compression_budget", ""),
    ("failure_log", ""),
    ("held_body", ""),
    ("hex", ""),
    ("json_path", ""),
    ("name_validation", ""),
    ("object_limits", ""),
    ("random", ""),
    ("write_order", ""),
    ("store", "failure_log hex"),
    ("auth", "hex name_validation random"),
    ("audit", "auth failure_log"),
    ("binaries", "hex"),
    ("machines", "auth store"),
    // Objects and requests, as pure functions.
    ("schema", "name_validation object_limits"),
    ("kind_registry", "schema"),
    ("built_in", "kind_registry"),
    ("discovery", "kind_registry"),
    ("event_conversion", "kind_registry"),
    ("request", "schema"),
    ("status", "kind_registry schema"),
    ("websocket", "status"),
    ("table", "json_path kind_registry schema"),
    ("openapi", "discovery hex kind_registry"),
    ("object", "event_conversion kind_registry name_validation object_limits schema"),
    ("scale", "kind_registry schema"),
    ("definition", "kind_registry name_validation object object_limits schema"),
    ("field_management", "event_conversion kind_registry object object_limits schema"),
    ("unreadable_entries", "object store"),
    ("metrics", "store unreadable_entries"),
    ("admission", "definition field_management kind_registry object object_limits request scale schema status"),
    ("body", "auth object_limits status"),
    ("deletion", "definition kind_registry object request"),
    ("patch", "object_limits schema status"),
    ("selector", "kind_registry name_validation schema status"),
    ("strategy", "auth definition field_management kind_registry object object_limits status"),
    ("rbac", "auth discovery kind_registry object schema selector store"),
    ("data_check", "object store"),
    ("request_shares", "auth held_body status"),
    ("quotas", "auth kind_registry object status store"),
    ("stored_bytes", "auth status store"),
    // The hub: store, kinds and state that its parts share.
    ("served_kinds", "admission kind_registry"),
    ("hub", "audit auth binaries body compression_budget failure_log kind_registry metrics object quotas rbac request_shares served_kinds store stored_bytes unreadable_entries write_order"),
    // Background loops and the request handlers.
    ("backup_stream", "audit auth hub"),
    ("sweep", "hub store"),
    ("event_ttl", "hub object store sweep"),
    ("csr_ttl", "hub object store sweep"),
    ("node_liveness", "hub machines object store"),
    ("signer", "auth hub machines object store"),
    ("garbage_collector", "deletion hub kind_registry object request store"),
    ("definition_loop", "admission built_in definition deletion hub kind_registry object request schema served_kinds store"),
    ("role_aggregation", "hub object object_limits rbac store"),
    ("router", "admission audit auth binaries body definition deletion discovery event_conversion field_management hex hub kind_registry machines metrics name_validation object object_limits openapi patch random rbac request request_shares scale schema selector served_kinds status store strategy table unreadable_entries websocket"),
    // What starts a hub, and the port it is served on.
    ("startup", "admission audit auth binaries body built_in csr_ttl definition_loop event_ttl failure_log garbage_collector hub kind_registry metrics node_liveness object object_limits quotas rbac request_shares role_aggregation served_kinds signer store stored_bytes unreadable_entries write_order"),
    ("server", "auth failure_log held_body router"),
];

#[rustfmt::skip] // one module a line
pub(crate) const MACHINIST: Table = &[
    // Helpers of one purpose.
    ("fault_injection", ""),
    ("durable_file", "fault_injection"),
    ("data_dir", "durable_file"),
    ("listen", ""),
    ("machine_report", ""),
    ("liveness", ""),
    ("manifests", ""),
    ("serving_certificate", ""),
    ("systemd_notify", ""),
    ("telemetry", ""),
    // Kubernetes plumbing that every process shares.
    ("kubernetes", "data_dir"),
    ("metrics", "listen serving_certificate"),
    // Processes: they do not know each other.
    ("controller", "kubernetes listen liveness metrics"),
    ("daemon", "durable_file fault_injection kubernetes liveness machine_report manifests metrics systemd_notify telemetry"),
    ("enrol", "fault_injection"),
    ("operator", "kubernetes listen metrics"),
    ("server", "durable_file kubernetes listen liveness manifests metrics serving_certificate"),
    // Work of a single command.
    ("bootstrap", "durable_file"),
    ("must_gather", "kubernetes"),
    ("backup", "data_dir durable_file"),
    // Everything in one process, and the command line.
    ("up", "backup controller data_dir durable_file kubernetes listen liveness metrics server serving_certificate systemd_notify"),
    ("cli", "backup bootstrap controller daemon data_dir durable_file enrol kubernetes liveness machine_report manifests metrics must_gather operator server serving_certificate systemd_notify telemetry up"),
];

#[rustfmt::skip] // one module a line
pub(crate) const TEST_KIT: Table = &[
    // Helpers of one purpose.
    ("cache", ""),
    ("cgroup", ""),
    ("command", ""),
    ("cpu_load", ""),
    ("http_get", ""),
    ("machine_config_files", ""),
    ("mounts", ""),
    ("objects", ""),
    ("pki", ""),
    ("runtime", ""),
    ("wait", ""),
    ("binary", "cache command"),
    ("http_server", "pki"),
    ("image", "cache"),
    ("measurements", "cache"),
    ("proxy", "runtime"),
    ("rollout_checker", "runtime"),
    // What a test owns, and what it starts in there.
    ("environment", "cache cgroup"),
    ("lab", "cache cgroup command environment mounts wait"),
    ("faults", "command environment lab mounts wait"),
    ("fleet", "lab runtime"),
    ("ignition", "cache command environment pki"),
    ("image_registry", "command environment image lab pki wait"),
    ("leftovers", "cache cgroup command lab"),
    ("machine", "binary cache cgroup command faults ignition lab mounts wait"),
    ("cluster", "cache command environment image image_registry lab machine pki runtime wait"),
    ("api_server", "binary cache cluster command environment lab runtime wait"),
    ("qemu", "binary command environment lab machine wait"),
];
