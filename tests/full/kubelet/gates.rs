//! The table of feature gates against the kubelet: it sets the gates of its flags before it searches its configuration
//! file, so that one that does not exist keeps it from starting.

use anyhow::{Result, ensure};
use kubelet_config::kubelet::gates::{GATES, Gate};

use super::{Kubelet, message, run};

/// Why the kubelet exits with these gates.
fn refusal(kubelet: &Kubelet, gates: &[String]) -> Result<String> {
    let flag = format!("--feature-gates={}", gates.join(","));
    let output = run(&kubelet.path, &[&flag, "--config=/nonexistent/nodevigil"])?;
    Ok(message(&String::from_utf8_lossy(&output.stderr)).unwrap_or_default())
}

/// Whether the kubelet refuses exactly what the table has as refused.
pub(crate) fn agree(kubelet: &Kubelet) -> Result<()> {
    let minor = kubelet.version.minor;
    let (known, unknown): (Vec<&Gate>, Vec<&Gate>) = GATES.iter().partition(|gate| gate.known_in(minor));
    ensure!(known.len() > 100 && unknown.len() > 100, "{} and {}", known.len(), unknown.len());
    let locked = |locked: Option<_>| locked.filter(|(since, _)| *since <= minor).map(|(_, value): (_, bool)| value);

    let fine: Vec<_> =
        known.iter().map(|gate| format!("{}={}", gate.name, locked(gate.locked).unwrap_or_default())).collect();
    let theirs = refusal(kubelet, &fine)?;
    ensure!(!theirs.contains("unrecognized feature gate") && !theirs.contains("cannot set"), "{theirs}");

    for gate in &known {
        let Some(value) = locked(gate.locked) else { continue };
        let theirs = refusal(kubelet, &[format!("{}={}", gate.name, !value)])?;
        ensure!(theirs.contains(&format!("{} to {}, feature is locked to {value}", gate.name, !value)), "{theirs}");
    }
    for gate in unknown {
        let theirs = refusal(kubelet, &[format!("{}=true", gate.name)])?;
        ensure!(theirs.ends_with(&format!("unrecognized feature gate: {}", gate.name)), "{}: {theirs}", gate.name);
    }
    Ok(())
}
