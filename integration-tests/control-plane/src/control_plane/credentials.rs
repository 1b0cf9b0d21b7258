//! Keys, tokens and kubeconfigs: the files that have to be there before the programs start.
//!
//! The API server makes its serving certificate, and an authority for it, by itself. The certificate file holds both,
//! so it serves as the authority of clients.

use super::User;
use anyhow::{Context as _, Result, ensure};
use rcgen::KeyPair;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Private key that signs tokens of service accounts.
pub(super) const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
/// Its public half.
pub(super) const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-account.pub";
/// Token, name, uid and groups of each user.
pub(super) const TOKENS: &str = "tokens.csv";
/// Folder in which the API server makes its certificate.
pub(super) const CERTIFICATES: &str = "certificates";
/// What clients trust.
pub(super) const AUTHORITY: &str = "certificates/apiserver.crt";
/// What kwok does to nodes and pods.
pub(super) const STAGES: &str = "stages.yaml";

const STAGES_TEXT: &str = include_str!("../../stages.yaml");
const ADMINISTRATOR: &str = "admin";

/// The administrator's kubeconfig.
pub(super) fn administrator(state: &Path) -> PathBuf {
    kubeconfig(state, ADMINISTRATOR)
}

fn kubeconfig(state: &Path, name: &str) -> PathBuf {
    state.join(format!("{name}.kubeconfig"))
}

/// The users of a control plane.
#[derive(Debug)]
pub(super) struct Credentials {
    state: PathBuf,
    administrator: PathBuf,
    tokens: BTreeMap<String, String>,
}

impl Credentials {
    /// Writes all files but the kubeconfigs, for which the port must be known.
    pub(super) fn create(state: &Path, users: &[User]) -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let write = |name: &str, text: &str| {
            let path = state.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write(SERVICE_ACCOUNT_KEY, &key.serialize_pem())?;
        write(SERVICE_ACCOUNT_PUBLIC_KEY, &key.public_key_pem())?;
        write(STAGES, STAGES_TEXT)?;

        let administrator = User { name: ADMINISTRATOR.to_owned(), groups: vec!["system:masters".to_owned()] };
        let mut tokens = BTreeMap::new();
        let mut lines = String::new();
        for User { name, groups } in std::iter::once(&administrator).chain(users) {
            // A secret per user that follows from the secret key.
            let token = hex::encode(Sha256::new().chain_update(key.serialize_der()).chain_update(name).finalize());
            writeln!(lines, r#"{token},"{name}","{name}","{}""#, groups.join(","))?;
            ensure!(tokens.insert(name.clone(), token).is_none(), "there are two users called {name}");
        }
        write(TOKENS, &lines)?;
        Ok(Self { state: state.to_owned(), administrator: self::administrator(state), tokens })
    }

    /// Writes the kubeconfig of every user for an API server on `port`.
    pub(super) fn write_kubeconfigs(&self, port: u16) -> Result<()> {
        self.tokens.iter().try_for_each(|(name, token)| self.write_kubeconfig(name, token, port).map(drop))
    }

    /// Writes a kubeconfig called `name` with any token. Programs that start meanwhile read the old one or the new one,
    /// never a part.
    pub(super) fn write_kubeconfig(&self, name: &str, token: &str, port: u16) -> Result<PathBuf> {
        let authority = self.state.join(AUTHORITY);
        // Not "localhost", for which the certificate is not valid.
        let server = format!("https://127.0.0.1:{port}");
        // YAML in its JSON form.
        let content = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": super::CONTEXT, "context": {"cluster": "test", "user": name}}],
            "current-context": super::CONTEXT,
        });
        let path = kubeconfig(&self.state, name);
        let text = serde_json::to_string_pretty(&content)?;
        let write = || {
            let mut file = NamedTempFile::new_in(&self.state)?;
            file.write_all(text.as_bytes())?;
            file.persist(&path).map_err(|error| error.error)
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// The administrator's kubeconfig.
    pub(super) fn administrator(&self) -> &Path {
        &self.administrator
    }

    /// The kubeconfig of the user called `name`.
    pub(super) fn user(&self, name: &str) -> Result<PathBuf> {
        ensure!(self.tokens.contains_key(name), "there is no user called {name}");
        Ok(kubeconfig(&self.state, name))
    }
}
