//! The samples for controllers that read us, applied to a real API server that knows their types.
//!
//! The definitions are the projects' own (tests/cluster/crds), but for one stand-in of ours; their webhooks are not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::scene::{SOON, Scene};
use crate::support::api::condition_status;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::trust;
use crate::support::{repository, say, tools, wait_until};
use crate::trial;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const STRICT: &str = "fieldValidation=Strict";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("samples::applied", each_sample_is_taken),
        trial("samples::helper_away", nothing_cordons_without_the_helper),
    ]
}

fn each_sample_is_taken() -> Result<()> {
    let plane = ControlPlane::start(Options::default())?;
    define(&plane)?;
    let mut taken = Vec::new();
    for file in files(&repository().join("packaging/kubernetes/samples"))? {
        let name = file.file_name().context("a name")?.to_string_lossy();
        let objects = documents(&file)?;
        ensure!(!objects.is_empty(), "{name} is empty");
        if objects.iter().all(|object| object["kind"].is_null()) {
            continue; // a Helm chart's values
        }
        for object in objects {
            let path = path(&plane, &object)?;
            refused(&plane, &path, &object).with_context(|| name.clone().into_owned())?;
            let (code, answer) =
                plane.request("POST", &format!("{path}?{STRICT}"), JSON, &object)?;
            ensure!(code == 201, "{name}: {code}: {answer:#}");
            let kind = object["kind"].as_str().unwrap_or_default();
            taken.push(format!("{name}: {kind} {}", answer["metadata"]["name"]));
        }
    }
    say(&format!("samples: taken:\n  {}", taken.join("\n  ")));
    ensure!(taken.len() >= 4, "{taken:?}");
    Ok(())
}

/// The helper is stopped for more than a minute: its conditions are `Unknown`, no sample's rule or policy matches, nothing taints.
fn nothing_cordons_without_the_helper() -> Result<()> {
    Scene::healthy("helper-away")?.play(|scene| {
        scene
            .node
            .sh("systemctl stop nodevigil-helper.socket nodevigil-helper.service")?;
        let all = || -> Result<Value> {
            let node = scene.plane.node(scene.node.name())?;
            node.context("no Node")
        };
        let minutes = Duration::from_mins(3);
        wait_until("NodeStorageHealthy=Unknown", minutes, || {
            Ok((condition_status(&all()?, "NodeStorageHealthy") == Some("Unknown")).then_some(()))
        })?;
        let node = all()?;
        ensure!(node["spec"]["unschedulable"] != true, "{node:#}");
        let taints = node["spec"]["taints"].as_array();
        let mut taints = taints.into_iter().flatten();
        ensure!(
            !taints.any(|taint| taint.to_string().contains("nodevigil")),
            "{node:#}"
        );
        for kind in nodevigil::desired::TYPES {
            let bad = condition_status(&node, kind.name) == Some(kind.bad.as_str());
            ensure!(!bad, "{}: {node:#}", kind.name);
        }
        for file in files(&repository().join("packaging/kubernetes/samples"))? {
            for object in documents(&file)? {
                let wanted = object["spec"]["conditions"].as_array();
                for wanted in wanted.into_iter().flatten() {
                    let kind = wanted["type"].as_str().context("a type")?;
                    let is = condition_status(&node, kind);
                    ensure!(is == wanted["requiredStatus"].as_str(), "{kind}: {is:?}");
                }
            }
        }
        scene.node.sh("systemctl start nodevigil-helper.socket")?;
        trust::row(
            10,
            "the helper is away for more than a minute",
            "NodeStorageHealthy=Unknown; the shipped continuous rule taints NoSchedule",
            "NodeStorageHealthy=Unknown; nothing shipped taints or cordons",
        );
        Ok(())
    })
}

/// Creates what a sample holds; what it became.
pub(crate) fn apply(plane: &ControlPlane, file: &Path) -> Result<Vec<Value>> {
    let mut made = Vec::new();
    for object in documents(file)? {
        let path = format!("{}?{STRICT}", path(plane, &object)?);
        let (code, answer) = plane.request("POST", &path, JSON, &object)?;
        ensure!(code == 201, "{}: {code}: {answer:#}", file.display());
        made.push(answer);
    }
    Ok(made)
}

/// The same with a field that is not there: so the server does look.
fn refused(plane: &ControlPlane, path: &str, object: &Value) -> Result<()> {
    let mut wrong = object.clone();
    wrong["spec"]["notThere"] = json!(true);
    let path = format!("{path}?{STRICT}&dryRun=All");
    let (code, answer) = plane.request("POST", &path, JSON, &wrong)?;
    let named = answer["message"].to_string().contains("notThere");
    ensure!(
        code == 400 && named,
        "a field that is not there: {code}: {answer:#}"
    );
    Ok(())
}

/// Has the API server know the types of the samples.
pub(crate) fn define(plane: &ControlPlane) -> Result<()> {
    let stand_ins = repository().join("tests/cluster/crds/stand-ins");
    for folder in [tools::definitions()?, stand_ins] {
        for file in files(&folder)? {
            for definition in documents(&file)? {
                let (code, answer) = plane.request("POST", DEFINITIONS, JSON, &definition)?;
                ensure!(code == 201, "{}: {code}: {answer:#}", file.display());
                let name = definition["metadata"]["name"].as_str().context("a name")?;
                wait_until(name, SOON, || {
                    let (_, there) = plane.get(&format!("{DEFINITIONS}/{name}"))?;
                    let conditions = there["status"]["conditions"].as_array();
                    let served = conditions.into_iter().flatten().any(|condition| {
                        condition["type"] == "Established" && condition["status"] == "True"
                    });
                    Ok(served.then_some(()))
                })?;
            }
        }
    }
    Ok(())
}

/// Where objects of this kind are created.
fn path(plane: &ControlPlane, object: &Value) -> Result<String> {
    let version = object["apiVersion"].as_str().context("an apiVersion")?;
    let kind = object["kind"].as_str().context("a kind")?;
    let group = if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    };
    wait_until(kind, SOON, || {
        let (_, list) = plane.get(&group)?;
        let resources = list["resources"].as_array();
        let found = resources.into_iter().flatten().find(|resource| {
            resource["kind"] == kind && resource["name"].as_str().is_some_and(|n| !n.contains('/'))
        });
        Ok(found.map(|resource| {
            let name = resource["name"].as_str().unwrap_or_default();
            let namespace = object["metadata"]["namespace"]
                .as_str()
                .unwrap_or("default");
            if resource["namespaced"] == true {
                format!("{group}/namespaces/{namespace}/{name}")
            } else {
                format!("{group}/{name}")
            }
        }))
    })
}

/// The YAML files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = paths
        .filter(|p| p.extension().is_some_and(|kind| kind == "yaml"))
        .collect();
    files.sort();
    Ok(files)
}

fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file)?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}
