//! What the agent writes, rehearsed: the API server goes through it, admission policies included, and keeps nothing.

use serde_json::json;

use super::{Ground, cluster::ask, line::Lines};
use crate::{
    clock::Clock,
    cluster::{
        api::{Api, ApiError, NodeView, review::Right},
        identity::Identity,
    },
};

/// Other writers of the list are seldom faster more often than that.
const TRIES: u32 = 3;

pub(super) async fn look(
    lines: &Lines,
    ground: &Ground,
    identity: &Identity,
    api: &Api,
    view: &NodeView,
) {
    match ask(api.rehearse_apply(&view.uid, Clock.now().wall)).await {
        Ok(()) => lines.ok("apply", "a dry run of our conditions is taken"),
        Err(error) => lines.fail(
            "apply",
            format!("a dry run of our conditions: {error}"),
            "an admission policy or webhook of the cluster refuses what the agent writes",
        ),
    }
    let rules = &ground.settings.taints;
    let Some(kind) = rules.conditions.first() else {
        return lines.skip("taints", "not wanted: [taints] conditions is empty");
    };
    if let Identity::Kubelet(_) = identity {
        return lines.fail(
            "taints",
            "configured, and NodeRestriction forbids them to the kubelet's identity",
            "give the agent its own: packaging/kubernetes/README.md",
        );
    }
    let right = Right {
        verb: "patch",
        resource: "nodes",
        own: true,
        ..Right::default()
    };
    if let Ok(Err(why)) = ask(api.may(right)).await {
        return lines.fail(
            "taints",
            format!("may not taint its Node ({why})"),
            "kubectl apply -f packaging/kubernetes/taints.yaml",
        );
    }
    let taint = json!({
        "key": rules.key(*kind), "effect": rules.effect.as_str(), "value": "Rehearsal",
    });
    match rehearse(api, view, &taint).await {
        Ok(()) => lines.ok("taints", "a dry run of our taint is taken"),
        Err(error) => lines.fail(
            "taints",
            format!("a dry run of our taint: {error}"),
            "do prefix and effect of [taints] stand in packaging/kubernetes/policy.yaml?",
        ),
    }
}

/// The list may change under us, as it may under the agent.
async fn rehearse(api: &Api, view: &NodeView, taint: &serde_json::Value) -> Result<(), ApiError> {
    let mut before = view.taints.clone();
    for _ in 1..TRIES {
        match ask(api.rehearse_taint(&before, taint.clone())).await {
            Err(ApiError::Refused { code: 422, .. }) => {}
            result => return result,
        }
        if let (Some(view), _) = ask(api.list()).await? {
            before = view.taints;
        }
    }
    ask(api.rehearse_taint(&before, taint.clone())).await
}
