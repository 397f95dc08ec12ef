//! Every field of `kubelet.config.k8s.io/v1beta1`, with the release that brought it. Checked against the pinned module.
