//! The allowed edges between the top-level modules of each crate: module, and the modules it may use.
//!
//! Each table is ordered bottom-up: a module uses only modules above its line. An edge that starts
//! with `!` is a known violation; remove the edge from the code, then from the table.

/// Module, and the modules it may use, separated by spaces.
pub(crate) type Table = &'static [(&'static str, &'static str)];

pub(crate) const CORE: Table = &[
    // Vocabulary and helpers: API types and conversions that know no decision.
    ("api", ""),
    ("duration", ""),
    ("hex", ""),
    ("secrets", ""),
    // Views and formats: one object or format each.
    ("go", "api"),
    ("migrate", "api"),
    ("node", "api"),
    ("os", "api"),
    ("tls_profile", "api"),
    ("user_data", "api"),
    ("ignition", "go"),
    ("redact", "ignition secrets"),
    // One MachineConfig: whether it is valid and whether a machine can take it.
    ("validate", "api ignition"),
    ("reconcile_check", "api ignition validate"),
    ("lint", "api ignition reconcile_check validate"),
    // Generators: other objects become MachineConfigs. They do not know each other, except that
    // kubelet starts from the templates.
    ("generated_config", "api ignition"),
    ("container_runtime", "api generated_config ignition"),
    ("template", "api generated_config go ignition tls_profile"),
    ("kubelet", "api generated_config go template tls_profile"),
    // MachineConfigs become a pool's rendered config.
    ("render", "api go hex ignition os reconcile_check validate"),
    ("generate", "api container_runtime generated_config kubelet render template"),
    // A config on a machine: what a change means and does there.
    ("diff", "api ignition reconcile_check secrets"),
    ("apply", "api go hex ignition os reconcile_check"),
    ("disruption", "api container_runtime diff go ignition reconcile_check"),
    ("drift", "api apply ignition"),
    ("health", "api duration ignition"),
    // A config on its way to machines.
    ("drain", "api node"),
    ("rollout", "api drain duration node"),
    ("serve", "api go hex ignition secrets"),
    // Processes and commands: they combine the decisions above.
    ("daemon", "api diff disruption node os reconcile_check"),
    ("certificates", "api apply daemon"),
    ("adopt", "api diff render"),
    ("plan", "api apply diff disruption ignition node reconcile_check render rollout"),
    ("bootstrap", "api container_runtime generate generated_config go kubelet render"),
    ("operator", "api drift go rollout serve user_data"),
];

pub(crate) const HUB: Table = &[
    // Formats and stores that know no Kubernetes object.
    ("audit", ""),
    ("auth", ""),
    ("json_path", ""),
    ("kind_registry", ""),
    ("schema", "!selector"),
    ("store", "!metrics"),
    ("metrics", "store"),
    // Objects and requests, as pure functions.
    ("built_in", "kind_registry"),
    ("discovery", "kind_registry"),
    ("event_conversion", "kind_registry"),
    ("request", "schema"),
    ("status", "kind_registry schema"),
    ("table", "json_path kind_registry schema"),
    ("openapi", "discovery kind_registry"),
    ("patch", "schema status"),
    ("selector", "kind_registry schema status"),
    ("object", "event_conversion kind_registry schema selector"),
    ("admission", "kind_registry object request schema status"),
    ("deletion", "kind_registry object request"),
    ("strategy", "auth kind_registry object status"),
    // Loops and handlers.
    ("event_ttl", "!hub object store"),
    ("signer", "auth !hub object store"),
    ("garbage_collector", "deletion !hub kind_registry object request store"),
    (
        "router",
        "admission audit auth deletion discovery event_conversion !hub kind_registry metrics \
         object openapi patch request schema selector status store strategy table",
    ),
    // The hub as a whole, and the ports it is served on.
    (
        "hub",
        "admission audit auth built_in event_ttl garbage_collector kind_registry metrics object \
         router signer store",
    ),
    ("server", "auth router"),
    ("robustness", "auth hub store"),
];

pub(crate) const MACHINIST: Table = &[
    // Plumbing that every process shares.
    ("client", "!up"),
    ("listen", ""),
    ("manifests", ""),
    ("metrics", ""),
    ("telemetry", ""),
    // Processes: they do not know each other.
    ("controller", "client listen metrics"),
    ("daemon", "client listen manifests metrics"),
    ("enrol", ""),
    ("operator", "client !controller listen metrics"),
    ("server", "client listen manifests metrics"),
    // Work of a single command.
    ("bootstrap", ""),
    ("must_gather", "client !daemon"),
    // Everything in one process, and the command line.
    ("up", "controller listen metrics server"),
    (
        "cli",
        "bootstrap client controller daemon enrol manifests must_gather operator server \
         telemetry up",
    ),
];
