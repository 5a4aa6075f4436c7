//! `machinist token`: provisioning tokens, with which machines fetch configs on their first boot.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use machinist_core::api::names::object;
use machinist_core::duration::parse_duration;
use machinist_core::serve::network::IpNetwork;
use machinist_core::serve::provisioning_token::{self, SECRET_PREFIX, SECRET_TYPE, TOKEN_LABEL};

use super::connection_args::ConnectionArgs;
use super::{CommandOutcome, output};
use crate::server::TokenFile;

/// Create, list and revoke provisioning tokens, with which machines fetch their config on the first boot
#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    Create(CreateTokenArgs),
    List(ListTokensArgs),
    Revoke(RevokeTokenArgs),
}

impl TokenCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(async {
            match self {
                Self::Create(command) => command.run().await,
                Self::List(command) => command.run().await,
                Self::Revoke(command) => command.run().await,
            }
        })
    }
}

/// Where tokens are stored.
#[derive(Debug, Args)]
struct TokenStoreArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace of Machinist's own objects
    #[arg(long, value_name = "NAME", default_value = object::NAMESPACE)]
    namespace: String,

    /// Store tokens in this file instead of the API server: provisioning-tokens.yaml in the directory
    /// that machinist server bootstrap serves
    #[arg(long, alias = "file", value_name = "FILE", conflicts_with = "kubeconfig")]
    tokens_file: Option<PathBuf>,
}

impl TokenStoreArgs {
    async fn open(&self) -> Result<CliTokenStore> {
        if let Some(path) = &self.tokens_file {
            return Ok(CliTokenStore::File(TokenFile::new(path.clone())));
        }
        let api = Api::namespaced(self.connection.client().await?, &self.namespace);
        Ok(CliTokenStore::Api(Box::new(api)))
    }
}

/// An open token store.
enum CliTokenStore {
    Api(Box<Api<Secret>>),
    File(TokenFile),
}

impl CliTokenStore {
    async fn add(&self, secret: Secret) -> Result<()> {
        match self {
            Self::Api(api) => {
                api.create(&PostParams::default(), &secret).await?;
            }
            Self::File(file) => {
                let mut secrets = file.secrets()?;
                secrets.push(secret);
                file.write(&secrets)?;
            }
        }
        Ok(())
    }

    async fn tokens(&self) -> Result<Vec<provisioning_token::ProvisioningToken>> {
        let secrets = match self {
            Self::Api(api) => api.list(&ListParams::default().labels(TOKEN_LABEL)).await?.items,
            Self::File(file) => return file.tokens(),
        };
        let read = |secret: &Secret| {
            provisioning_token::ProvisioningToken::from_secret(
                secret.metadata.name.as_deref()?,
                secret.data.as_ref()?,
            )
        };
        Ok(secrets.iter().filter_map(read).collect())
    }

    /// Returns whether the token existed.
    async fn remove(&self, name: &str) -> Result<bool> {
        match self {
            Self::Api(api) => match api.delete(name, &DeleteParams::default()).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::File(file) => {
                let mut secrets = file.secrets()?;
                let before = secrets.len();
                secrets.retain(|secret| secret.metadata.name.as_deref() != Some(name));
                if secrets.len() < before {
                    file.write(&secrets)?;
                }
                Ok(secrets.len() < before)
            }
        }
    }
}

/// Create a token and print it; it cannot be shown again
///
/// A machine sends the token in the header "Authorization: Bearer TOKEN", which a pointer config sets in
/// httpHeaders, or in the URL as ?token=TOKEN.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist token create --pool worker --ttl 24h --uses 20")]
pub(super) struct CreateTokenArgs {
    #[command(flatten)]
    store: TokenStoreArgs,

    /// Allow machines to fetch the config of this pool (repeatable)
    #[arg(long, value_name = "NAME", required_unless_present = "all_pools")]
    pool: Vec<String>,

    /// Allow machines to fetch the config of any pool
    #[arg(long, conflicts_with = "pool")]
    all_pools: bool,

    /// How long the token is valid, such as 30m or 24h
    #[arg(long, alias = "expires", value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    ttl: Duration,

    /// How often the token can be used [default: unlimited]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,

    /// Accept the token only from this network (repeatable) [default: all networks]
    #[arg(long, alias = "from", value_name = "NETWORK")]
    allow_from: Vec<IpNetwork>,
}

impl CreateTokenArgs {
    async fn run(&self) -> Result<CommandOutcome> {
        let mut new = provisioning_token::generate_token(machinist_hub::random::bytes()?);
        let lifetime = SignedDuration::try_from(self.ttl).context("--ttl")?;
        let expires = Timestamp::now().checked_add(lifetime).context("--ttl")?;
        new.token.expires = Some(expires);
        new.token.pools.clone_from(&self.pool);
        new.token.max_uses = self.uses;
        new.token.networks.clone_from(&self.allow_from);
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(format!("{SECRET_PREFIX}{}", new.token.id)),
                labels: Some([(TOKEN_LABEL.to_owned(), String::new())].into()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(new.token.to_secret_data()),
            ..Secret::default()
        };
        let added = self.store.open().await?.add(secret).await;
        added.context("cannot store the token")?;
        output::print(&format!("{}\n", new.text))?;
        Ok(CommandOutcome::Done)
    }
}

/// List the tokens, without their secrets
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist token list")]
pub(super) struct ListTokensArgs {
    #[command(flatten)]
    store: TokenStoreArgs,
}

impl ListTokensArgs {
    async fn run(&self) -> Result<CommandOutcome> {
        let tokens = self.store.open().await?.tokens().await?;
        output::print(&table(&tokens, Timestamp::now()))?;
        Ok(CommandOutcome::Done)
    }
}

fn table(tokens: &[provisioning_token::ProvisioningToken], now: Timestamp) -> String {
    let mut rows = vec![["ID", "POOLS", "EXPIRES", "USES", "FROM", "STATE"].map(str::to_owned)];
    for token in tokens {
        let list = |items: Vec<String>| {
            if items.is_empty() { "all".to_owned() } else { items.join(",") }
        };
        let limit = token.max_uses.map(|max| format!("/{max}")).unwrap_or_default();
        let state = if token.is_expired(now) { "expired" } else { "valid" };
        rows.push([
            token.id.clone(),
            list(token.pools.clone()),
            token.expires.map_or_else(|| "never".to_owned(), |end| format!("{end:.0}")),
            token.max_uses.map_or_else(|| "-".to_owned(), |_| format!("{}{limit}", token.uses)),
            list(token.networks.iter().map(IpNetwork::to_string).collect()),
            state.to_owned(),
        ]);
    }
    output::format_columns(&rows)
}

/// Revoke tokens: the server rejects them from now on
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist token revoke abcdef")]
pub(super) struct RevokeTokenArgs {
    #[command(flatten)]
    store: TokenStoreArgs,

    /// The ids of the tokens: the part before the dot
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

impl RevokeTokenArgs {
    async fn run(&self) -> Result<CommandOutcome> {
        let store = self.store.open().await?;
        let mut outcome = CommandOutcome::Done;
        for id in &self.ids {
            // A whole token stands for its id.
            let id = id.split('.').next().unwrap_or_default();
            let name = format!("{SECRET_PREFIX}{id}");
            let removed = store.remove(&name).await;
            match removed.with_context(|| format!("cannot revoke token {id}"))? {
                true => output::print(&format!("token {id} revoked\n"))?,
                false => {
                    output::print_error(&format!(
                        "token {id} does not exist; machinist token list shows all"
                    ));
                    outcome = CommandOutcome::Failed;
                }
            }
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_no_secret() {
        let new = provisioning_token::generate_token([3; 32]);
        let text = table(std::slice::from_ref(&new.token), Timestamp::UNIX_EPOCH);
        assert!(text.starts_with("ID      POOLS  EXPIRES"), "{text}");
        assert!(text.contains(&new.token.id) && text.contains("valid"), "{text}");
        assert!(!text.contains(&new.token.hash), "{text}");
    }
}
