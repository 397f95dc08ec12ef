//! Gets a credential from an exec plugin, which kubeconfigs of managed clouds name
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>).
//!
//! kube runs plugins itself, but without a deadline, on the runtime's thread, and with their output in errors.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use crate::host::child;

const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct ExecCredential {
    status: ExecCredentialStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// Runs the plugin that `user` names, if any, and puts the credential into `user` in its place. Returns when the credential expires, if
/// it does.
///
/// # Errors
/// If the plugin cannot be run, fails, or prints no credential. The error never quotes what it printed.
pub async fn ask(user: &mut AuthInfo) -> Result<Option<Timestamp>> {
    let Some(exec) = user.exec.take() else { return Ok(None) };
    let program = exec.command.clone().unwrap_or_default();
    let output = run(&exec).await;
    output.and_then(|output| put(&output, user)).with_context(|| format!("exec plugin {program}"))
}

async fn run(exec: &ExecConfig) -> Result<Vec<u8>> {
    let mut command = Command::new(exec.command.as_deref().unwrap_or_default());
    command.args(exec.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", request(exec)?);
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let (status, output) = child::run(command, DEADLINE).await?;
    if !status.success() {
        bail!("it ended with {status}; run it by hand to see why");
    }
    Ok(output)
}

fn request(exec: &ExecConfig) -> Result<String> {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster)?;
    }
    Ok(json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec}).to_string())
}

fn put(output: &[u8], user: &mut AuthInfo) -> Result<Option<Timestamp>> {
    // serde's error may quote the output.
    let parsed = serde_json::from_slice(output).map_err(|_| anyhow!("it printed no ExecCredential"));
    let ExecCredential { status } = parsed?;
    if let (Some(certificate), Some(key)) = (status.client_certificate_data, status.client_key_data) {
        // A kubeconfig has its data in base64, and an ExecCredential has not.
        user.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
        user.client_key_data = Some(BASE64_STANDARD.encode(key).into());
    } else {
        user.token =
            Some(status.token.context("its ExecCredential has neither a token nor a certificate with key")?.into());
    }
    Ok(status.expiration_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(script: &str) -> AuthInfo {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "env": [{"name": "TOKEN", "value": "t0ken"}]});
        let exec = Some(serde_json::from_value(exec).unwrap());
        AuthInfo { exec, ..AuthInfo::default() }
    }

    fn shown(user: &AuthInfo) -> serde_json::Value {
        serde_json::to_value(user).unwrap()
    }

    #[tokio::test]
    async fn a_plugins_token_replaces_the_plugin() {
        let script = r#"case $KUBERNETES_EXEC_INFO in *client.authentication.k8s.io/v1*) ;; *) exit 1;; esac
            echo "{\"status\": {\"token\": \"$TOKEN\", \"expirationTimestamp\": \"2026-11-26T06:17:00Z\"}}""#;
        let mut user = user(script);
        assert_eq!(ask(&mut user).await.unwrap(), Some("2026-11-26T06:17:00Z".parse().unwrap()));
        assert_eq!(shown(&user), json!({"token": "t0ken"}));
    }

    #[tokio::test]
    async fn a_plugins_certificate_is_taken_as_well() {
        let mut user = user(r#"echo '{"status": {"clientCertificateData": "A", "clientKeyData": "B"}}'"#);
        assert_eq!(ask(&mut user).await.unwrap(), None);
        assert_eq!(shown(&user), json!({"client-certificate-data": "QQ==", "client-key-data": "Qg=="}));
    }

    #[tokio::test]
    async fn no_error_quotes_what_a_plugin_prints() {
        for (script, wanted) in [
            ("echo s3cret; exit 3", "exit status: 3"),
            ("echo s3cret", "no ExecCredential"),
            (r#"echo '{"status": {"token": ["s3cret"]}}'"#, "no ExecCredential"),
            (r#"echo '{"status": {}}'"#, "neither a token nor a certificate"),
        ] {
            let error = format!("{:#}", ask(&mut user(script)).await.unwrap_err());
            assert!(error.contains(wanted) && error.contains("exec plugin sh"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
