//! Where a cgroup that the kernel's log names lies: in a pod, in a unit of this host's own, or elsewhere. A process is nobody by
//! its name alone: whoever may run a pod may give a process any name.

/// Whether the cgroup is a pod's, or below the one of all pods.
pub fn is_below_pods(cgroup: &str) -> bool {
    cgroup.split('/').any(|folder| folder.contains("kubepods"))
}

/// Whether the cgroup is that of a unit of this host's own systemd. systemd has its units below slices and nowhere else: one inside a
/// container has that container's scope or folder above it.
pub fn is_own_unit(cgroup: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let Some((above, unit)) = cgroup.rsplit_once('/') else {
        return false;
    };
    let mut slices = above.split('/').filter(|folder| !folder.is_empty());
    slices.all(is_slice) && !is_below_pods(above) && is_wanted(unit)
}

/// Whether the cgroup is that of such a unit of whichever systemd. If this host has a cgroup namespace of its own, the kernel names
/// its units with what is above that, which nobody in it knows: then the name is that of another host's unit as well as of ours.
pub fn may_be_own_unit(cgroup: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let Some((above, unit)) = cgroup.rsplit_once('/') else {
        return false;
    };
    let parent = above.rsplit('/').next().unwrap_or_default();
    is_slice(parent) && !is_below_pods(above) && is_wanted(unit)
}

/// Whether the cgroup is that one of this host's, or below it, as the kernel may name it from above our cgroup namespace.
pub fn may_be_within(cgroup: &str, group: &str) -> bool {
    let group = group.trim_end_matches('/');
    let is_it = |(at, _)| matches!(cgroup.as_bytes().get(at + group.len()), None | Some(b'/'));
    !group.is_empty() && !is_below_pods(cgroup) && cgroup.match_indices(group).any(is_it)
}

fn is_slice(folder: &str) -> bool {
    folder.strip_suffix(".slice").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_units_cgroup_is_told_from_one_that_ends_like_it() {
        let is_wanted = |unit: &str| unit == "containerd.service";
        for (cgroup, own, may_be) in [
            ("/system.slice/containerd.service", true, true),
            ("/runtime.slice/containerd.service", true, true),
            ("/machine/a/system.slice/containerd.service", false, true),
            (
                "/system.slice/docker-1.scope/system.slice/containerd.service",
                false,
                true,
            ),
            (
                "/kubepods.slice/kubepods-pod1.slice/containerd.service",
                false,
                false,
            ),
            (
                "/kubepods/pod1/1/system.slice/containerd.service",
                false,
                false,
            ),
            ("/system.slice/my-containerd.service", false, false),
            (
                "/system.slice/containerd.service/kubepods-pod1",
                false,
                false,
            ),
            ("/docker/1/containerd.service", false, false),
            ("containerd.service", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_own_unit(cgroup, is_wanted), own, "{cgroup}");
            assert_eq!(may_be_own_unit(cgroup, is_wanted), may_be, "{cgroup}");
        }
        let group = "/system.slice/kubelet.service";
        assert!(may_be_within("/system.slice/kubelet.service", group));
        assert!(may_be_within("/m/system.slice/kubelet.service/x", group));
        assert!(!may_be_within("/system.slice/kubelet.services", group));
        assert!(!may_be_within(
            "/kubepods/pod1/1/system.slice/kubelet.service",
            group
        ));
        assert!(!may_be_within("/system.slice/kubelet.service", ""));
    }
}
