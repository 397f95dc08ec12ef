//! The cluster: who we are there, what we may, and whether our apply would be taken.

use std::time::Duration;

use tokio::time::timeout;

use super::{Ground, line::Lines, writes};
use crate::{
    clock::Clock,
    cluster::{
        api::{Api, ApiError, NodeView, review::Right},
        identity::{self, DEFAULT_KUBECONFIG, Identity, IdentityError, Sources},
        inherited,
    },
    host::helper::KubeletFacts,
};

/// Reading a kubeconfig, or having the helper hand over the kubelet's.
const IDENTITY_DEADLINE: Duration = Duration::from_secs(6);
/// One question to the API server; after the first that is not answered none is asked.
const QUESTION_DEADLINE: Duration = Duration::from_millis(2500);
const APPLY_RBAC: &str = "kubectl apply -f packaging/kubernetes/rbac.yaml";

/// What the agent needs, and what is lost without it.
struct Need {
    check: &'static str,
    right: Right,
    what: &'static str,
    lost: &'static str,
    essential: bool,
}

const fn right(verb: &'static str, resource: &'static str) -> Right {
    Right {
        verb,
        group: "",
        resource,
        subresource: "",
        namespace: "",
        own: true,
    }
}

const NEEDS: &[Need] = &[
    Need {
        check: "node",
        right: right("watch", "nodes"),
        what: "watch its Node",
        lost: "nothing can be published without it",
        essential: true,
    },
    Need {
        check: "conditions",
        right: Right {
            subresource: "status",
            ..right("patch", "nodes")
        },
        what: "write conditions",
        lost: "nothing is published",
        essential: true,
    },
    Need {
        check: "events",
        right: Right {
            group: "events.k8s.io",
            namespace: "default",
            own: false,
            ..right("create", "events")
        },
        what: "create Events",
        lost: "no transition shows in kubectl describe node",
        essential: true,
    },
    Need {
        check: "events",
        right: Right {
            group: "events.k8s.io",
            namespace: "default",
            own: false,
            ..right("patch", "events")
        },
        what: "count Events that repeat",
        lost: "repeated transitions are not told",
        essential: false,
    },
    Need {
        check: "lease",
        right: Right {
            group: "coordination.k8s.io",
            namespace: "kube-node-lease",
            ..right("get", "leases")
        },
        what: "read its Lease",
        lost: "a kubelet that lives and no longer renews is not noticed",
        essential: false,
    },
];

/// Looks at all of it, as far as the API server answers.
pub(super) async fn look(lines: &Lines, ground: &Ground, facts: Option<KubeletFacts>) {
    let node = node_name(ground, facts);
    let sources = Sources {
        explicit: ground.settings.kubernetes.kubeconfig.clone(),
        default: DEFAULT_KUBECONFIG.into(),
        root: ground.root.clone(),
        kubelets: ground.settings.kubernetes.kubelet_identity,
        helper: ground.helper.clone(),
        keeps_note: false,
        timer: None,
    };
    if identity::is_inherited(&sources.root, &sources.default) {
        let path = sources.default.display();
        lines.warn("inherited", format!("{path} is left alone"), inherited::WHY);
    }
    match timeout(IDENTITY_DEADLINE, identity::find(sources)).await {
        Ok(Ok((identity, connection))) => {
            let server = connection.access().server.clone();
            let api = Api::new(connection, &node);
            if who(lines, &identity, &api, (&server, &node)).await {
                asked(lines, ground, &identity, &api, &node).await;
            }
        }
        Ok(Err(error)) => none(lines, ground, &error),
        Err(_) => {
            let secs = IDENTITY_DEADLINE.as_secs();
            lines.fail("identity", format!("not had within {secs} s"), "");
        }
    }
}

fn node_name(ground: &Ground, facts: Option<KubeletFacts>) -> String {
    let daemon = || ground.daemon.as_ref()?.node.clone();
    let configured = ground.settings.node.name.clone();
    configured
        .or_else(|| facts?.hostname_override)
        .or_else(daemon)
        .unwrap_or_else(|| {
            let host = nix::unistd::gethostname().unwrap_or_default();
            host.to_string_lossy().to_lowercase()
        })
}

/// No identity: nothing is published, or this user may not see it.
fn none(lines: &Lines, ground: &Ground, error: &IdentityError) {
    let said = error.to_string();
    if ground.user.is_stranger() && said.to_lowercase().contains("permission denied") {
        let daemon = ground.daemon.as_ref();
        let own = daemon.and_then(|daemon| daemon.identity.detail.clone());
        let own = own.unwrap_or_else(|| "nothing".to_owned());
        let user = &ground.user.name;
        return lines.skip(
            "identity",
            format!("{user} may not read it: run doctor as root; the daemon says: {own}"),
        );
    }
    lines.fail(
        "identity",
        format!("none, nothing is published: {said}"),
        "see packaging/kubernetes/README.md",
    );
}

async fn asked(lines: &Lines, ground: &Ground, identity: &Identity, api: &Api, node: &str) {
    let mut refused = Vec::new();
    let unwanted = unwanted(ground);
    for need in NEEDS.iter().filter(|need| !unwanted.contains(&need.check)) {
        match ask(api.may(need.right)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => refused.push((need, why)),
            Err(error) => {
                return lines.fail("api", format!("asked what we may: {error}"), "");
            }
        }
    }
    let may_watch = !refused.iter().any(|(need, _)| need.check == "node");
    let mut view = None;
    if may_watch {
        view = the_node(lines, api, node).await;
    }
    for check in ["node", "conditions", "events", "lease"] {
        if unwanted.contains(&check) {
            lines.skip(check, "not wanted: the configuration has it off");
        } else {
            permissions(lines, identity, check, &refused);
        }
    }
    let may_write = !refused.iter().any(|(need, _)| need.check == "conditions");
    match view {
        Some(view) if may_write && !ground.settings.choice.shadow => {
            writes::look(lines, ground, identity, api, &view).await;
        }
        _ => lines.skip("apply", "not tried: see the lines above"),
    }
}

/// What the configuration turns off.
fn unwanted(ground: &Ground) -> Vec<&'static str> {
    let settings = &ground.settings;
    let mut unwanted = Vec::new();
    if settings.choice.shadow {
        unwanted.push("conditions");
    }
    if settings.choice.shadow || settings.events.per_hour == 0 {
        unwanted.push("events");
    }
    unwanted
}

/// Who the API server takes us for; `false` if it does not answer or does not know us.
async fn who(lines: &Lines, identity: &Identity, api: &Api, (server, node): (&str, &str)) -> bool {
    let begun = Clock.now().uptime;
    let answer = ask(api.myself()).await;
    let took = Clock.now().uptime.saturating_sub(begun).as_millis();
    let described = identity.describe();
    let myself = match answer {
        Ok(myself) => myself,
        Err(ApiError::Unauthorized) => {
            lines.fail(
                "identity",
                format!("{described}: the API server does not accept it (401)"),
                "it has expired, or its Node object is not the one it was made for",
            );
            return false;
        }
        // Before Kubernetes 1.28 nobody could ask.
        Err(ApiError::NotFound | ApiError::Forbidden(_)) => {
            lines.ok("api", format!("{server} answers within {took} ms"));
            lines.ok("identity", described);
            return true;
        }
        Err(error) => {
            lines.ok("identity", described);
            lines.fail(
                "api",
                format!("{server}: {error}"),
                "the address in the kubeconfig, the network, or the API server itself",
            );
            return false;
        }
    };
    lines.ok("api", format!("{server} answers within {took} ms"));
    let user = &myself.username;
    match myself.node() {
        Some(other) if other != node => lines.fail(
            "identity",
            format!("{described}: user {user}, but this Node is {node}"),
            "the credential is another node's, or [node] name is wrong",
        ),
        Some(_) => lines.ok("identity", format!("{described}: user {user}")),
        None => lines.warn(
            "identity",
            format!("{described}: user {user}, which names no node"),
            "packaging/kubernetes/policy.yaml cannot pin it",
        ),
    }
    true
}

async fn the_node(lines: &Lines, api: &Api, node: &str) -> Option<NodeView> {
    match ask(api.list()).await {
        Ok((Some(view), _)) => {
            lines.ok("node", format!("{node} is there, uid {}", view.uid));
            Some(view)
        }
        Ok((None, _)) => {
            lines.fail(
                "node",
                format!("the cluster has no Node {node}"),
                "the kubelet has not registered it, or it registers another name: [node] name",
            );
            None
        }
        Err(error) => {
            lines.fail("node", error.to_string(), "");
            None
        }
    }
}

fn permissions(
    lines: &Lines,
    identity: &Identity,
    check: &'static str,
    refused: &[(&Need, String)],
) {
    let needs = NEEDS.iter().filter(|need| need.check == check);
    let refused: Vec<_> = refused
        .iter()
        .filter(|(need, _)| need.check == check)
        .collect();
    if refused.is_empty() {
        // The line of the Node itself has been told.
        if check != "node" {
            let what: Vec<_> = needs.map(|need| need.what).collect();
            lines.ok(check, format!("may {}", what.join(" and ")));
        }
        return;
    }
    for (need, why) in refused {
        let text = match why.as_str() {
            "" => format!("may not {}: {}", need.what, need.lost),
            why => format!("may not {}: {} ({why})", need.what, need.lost),
        };
        let advice = match identity {
            Identity::Own(_) => APPLY_RBAC,
            _ => "",
        };
        if need.essential {
            lines.fail(check, text, advice);
        } else {
            lines.warn(check, text, advice);
        }
    }
}

/// A question with its deadline.
pub(super) async fn ask<T>(
    question: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    timeout(QUESTION_DEADLINE, question)
        .await
        .unwrap_or_else(|_| {
            let ms = QUESTION_DEADLINE.as_millis();
            Err(ApiError::Network(format!("no answer within {ms} ms")))
        })
}
