//! `machinist hub token`: creates, lists and revokes bearer tokens of a running hub.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use machinist_core::duration::parse_duration;
use serde_json::{Value, json};

use super::super::up::DataDirArgs;
use super::super::{CommandOutcome, output};
use super::{hub_client, runtime};

/// Create a bearer token for a running hub and print it, or list and revoke tokens
///
/// The token is shown only once: the hub stores a hash of it.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example:\n  machinist hub token --role bootstrap --ttl 1h --pool worker --uses 3\n  machinist hub token list\n  machinist hub token revoke abcdef"
)]
pub(in crate::cli) struct HubTokenArgs {
    #[command(subcommand)]
    command: Option<HubTokenCommand>,

    #[command(flatten)]
    data_dir: DataDirArgs,

    /// What the token permits
    #[arg(long, value_enum, required = true)]
    role: Option<TokenRoleArg>,

    /// How long the token is valid, such as 1h [default: 24h for admin and bootstrap, 90 days for viewer and
    /// metrics, 365 days for controller]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    ttl: Option<Duration>,

    /// A name that machinist hub token list shows, such as the purpose or the owner of the token
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,

    /// Let machines of this pool join (repeatable; role bootstrap only) [default: worker]
    #[arg(long, value_name = "NAME")]
    pool: Vec<String>,

    /// Let machines of any pool join, control planes included (role bootstrap only)
    #[arg(long, conflicts_with = "pool")]
    all_pools: bool,

    /// Let only machines of this name join; * stands for any text (role bootstrap only)
    #[arg(long, value_name = "PATTERN")]
    node_name: Option<String>,

    /// How many machines may join (role bootstrap only) [default: unlimited; 1 with --replace]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,

    /// Let a machine join under the name of an existing one, whose certificates are then revoked (role bootstrap only)
    #[arg(long, value_name = "NODE", conflicts_with = "node_name")]
    replace: Option<String>,
}

#[derive(Debug, Subcommand)]
enum HubTokenCommand {
    List(ListHubTokensArgs),
    Revoke(RevokeHubTokensArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TokenRoleArg {
    /// Everything
    Admin,
    /// Read everything except Secrets, ControllerConfigs and the contents of MachineConfigs
    Viewer,
    /// Read the metrics of the hub and of its machines, and nothing else
    Metrics,
    /// Run machinist controller against this hub
    Controller,
    /// Request the certificate of a new machine
    Bootstrap,
}

impl TokenRoleArg {
    fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Metrics => "metrics",
            Self::Controller => "controller",
            Self::Bootstrap => "bootstrap",
        }
    }
}

/// Parses a duration. A number alone means seconds, as earlier versions took it.
fn parse_ttl(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => parse_duration(text),
    }
}

impl HubTokenArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match &self.command {
            Some(HubTokenCommand::List(command)) => command.run(),
            Some(HubTokenCommand::Revoke(command)) => command.run(),
            None => self.create(),
        }
    }

    fn create(&self) -> Result<CommandOutcome> {
        let body = self.request_body()?;
        let made: Value = runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            let request = http::Request::post("/machinist/v1/tokens")
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&body)?)?;
            client.request(request).await.context("the hub did not create the token")
        })?;
        output::print(&format!("{}\n", made["token"].as_str().unwrap_or_default()))?;
        Ok(CommandOutcome::Done)
    }

    fn request_body(&self) -> Result<Value> {
        let role = self.role.context("--role is missing")?;
        let is_bound = !self.pool.is_empty()
            || self.all_pools
            || self.node_name.is_some()
            || self.uses.is_some()
            || self.replace.is_some();
        anyhow::ensure!(
            role == TokenRoleArg::Bootstrap || !is_bound,
            "--pool, --all-pools, --node-name, --uses and --replace are for --role bootstrap only"
        );
        let pools = if self.all_pools { vec!["*".to_owned()] } else { self.pool.clone() };
        Ok(json!({
            "role": role.name(),
            "ttlSeconds": self.ttl.map(|ttl| ttl.as_secs()),
            "name": self.name,
            "pools": pools,
            "nodeName": self.node_name,
            "maxUses": self.uses,
            "replaces": self.replace,
        }))
    }
}

/// List the tokens, without their secrets
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub token list")]
struct ListHubTokensArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = output::OutputFormat::Text)]
    output: output::OutputFormat,
}

impl ListHubTokensArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let found: Value = runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            let request = http::Request::get("/machinist/v1/tokens").body(Vec::new())?;
            client.request(request).await.context("the hub did not list its tokens")
        })?;
        match self.output {
            output::OutputFormat::Json => output::print_json(&found["items"])?,
            output::OutputFormat::Text => output::print(&table(&found, Timestamp::now()))?,
        }
        Ok(CommandOutcome::Done)
    }
}

/// The tokens as a table.
fn table(found: &Value, now: Timestamp) -> String {
    let heading = ["ID", "ROLE", "NAME", "FOR", "USES", "EXPIRES", "LAST USED", "STATE"];
    let mut rows = vec![heading.map(str::to_owned)];
    for token in found["items"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let time = |value: &Value, none: &str| {
            let time = value.as_i64().and_then(|seconds| Timestamp::from_second(seconds).ok());
            time.map_or_else(|| none.to_owned(), |time| format!("{time:.0}"))
        };
        let is_expired = token["expires"].as_i64().is_some_and(|end| end <= now.as_second());
        let bootstrap = &token["bootstrap"];
        let is_used_up = bootstrap["maxUses"].is_u64() && bootstrap["uses"] == bootstrap["maxUses"];
        rows.push([
            text(&token["id"]),
            text(&token["role"]),
            // A name may contain anything but control characters.
            Some(text(&token["name"])).filter(|name| !name.is_empty()).unwrap_or("-".to_owned()),
            purpose(&token["bootstrap"]),
            uses(&token["bootstrap"]),
            time(&token["expires"], "never"),
            time(&token["lastUsed"], "-"),
            match (is_expired, is_used_up) {
                (true, _) => "expired",
                (false, true) => "used up",
                (false, false) => "valid",
            }
            .to_owned(),
        ]);
    }
    output::format_columns(&rows)
}

/// Which machines may join with a token.
fn purpose(bootstrap: &Value) -> String {
    let Some(_) = bootstrap.as_object() else { return "-".to_owned() };
    let pools: Vec<&str> =
        bootstrap["pools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let pools = if pools.is_empty() { "all pools".to_owned() } else { pools.join(",") };
    match (bootstrap["replaces"].as_str(), bootstrap["nodeNames"].as_str()) {
        (Some(name), _) => format!("{pools} replacing {name}"),
        (None, Some(names)) => format!("{pools} named {names}"),
        (None, None) => pools,
    }
}

fn uses(bootstrap: &Value) -> String {
    match (bootstrap["uses"].as_u64(), bootstrap["maxUses"].as_u64()) {
        (Some(uses), Some(max)) => format!("{uses}/{max}"),
        (Some(uses), None) => format!("{uses}/unlimited"),
        (None, _) => "-".to_owned(),
    }
}

/// Revoke tokens: the hub rejects them from now on
///
/// Machines that joined with a bootstrap token keep their certificates; machinist hub revoke revokes those.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub token revoke abcdef")]
struct RevokeHubTokensArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// The ids of the tokens: the part before the dot
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl RevokeHubTokensArgs {
    fn run(&self) -> Result<CommandOutcome> {
        runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            let mut outcome = CommandOutcome::Done;
            for id in &self.ids {
                // A whole token stands for its id; the secret is not sent.
                let id = id.split('.').next().unwrap_or_default();
                let request = http::Request::delete(format!("/machinist/v1/tokens/{id}"))
                    .body(Vec::new())
                    .with_context(|| format!("{id:?}: this is not the id of a token"))?;
                let revoked: kube::Result<Value> = client.request(request).await;
                match revoked {
                    Ok(_) => output::print(&format!("token {id} revoked\n"))?,
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        output::print_error(&format!(
                            "token {id} does not exist; machinist hub token list shows all"
                        ));
                        outcome = CommandOutcome::Failed;
                    }
                    Err(error) => {
                        return Err(error).with_context(|| format!("cannot revoke token {id}"));
                    }
                }
            }
            Ok(outcome)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_each_token_is_for() {
        let found = json!({"items": [
            {"id": "old", "role": "admin", "name": "", "expires": null, "lastUsed": null},
            {"id": "new", "role": "bootstrap", "name": "rack 7", "expires": 5, "lastUsed": 3,
             "bootstrap": {"pools": ["worker"], "nodeNames": "w*", "uses": 1, "maxUses": 3}},
            {"id": "once", "role": "bootstrap", "name": "", "expires": null, "lastUsed": null,
             "bootstrap": {"pools": [], "uses": 1, "maxUses": 1}},
        ]});
        let text = table(&found, Timestamp::from_second(5).unwrap());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect())
            .collect();
        assert_eq!(lines[1], ["old", "admin", "-", "-", "-", "never", "-", "valid"]);
        assert_eq!(
            lines[2],
            [
                "new",
                "bootstrap",
                "rack 7",
                "worker named w*",
                "1/3",
                "1970-01-01T00:00:05Z",
                "1970-01-01T00:00:03Z",
                "expired"
            ]
        );
        assert_eq!(
            lines[3],
            ["once", "bootstrap", "-", "all pools", "1/1", "never", "-", "used up"]
        );
    }
}
