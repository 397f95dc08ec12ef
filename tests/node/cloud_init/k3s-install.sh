#!/bin/sh
# Stands in for https://get.k3s.io, which the tests cannot reach: the files that it writes for an agent, and a program that starts
# the real containerd and kubelet as k3s does. Left out: the modules that the unit has modprobe load.
set -e
[ "$INSTALL_K3S_EXEC" = agent ]

cat >/usr/local/bin/k3s <<'END'
#!/bin/sh
[ "$1" = --version ] && { echo "k3s version v1.36.3+k3s1 (0000000)"; exit 0; }
[ "$1" = agent ] || exit 1
agent=/var/lib/rancher/k3s/agent
mkdir -p /run/k3s/containerd
containerd --address /run/k3s/containerd/containerd.sock --root $agent/containerd --state /run/k3s/containerd &
# The last file with the list counts, and replaces the others'.
for file in /etc/rancher/k3s/config.yaml /etc/rancher/k3s/config.yaml.d/*.yaml; do
  if [ -e "$file" ] && grep -q '^kubelet-arg:' "$file"; then last=$file; fi
done
arguments=
if [ "$last" ]; then arguments=$(sed -n '/^kubelet-arg:/,/^[^ -]/s/^ *- */--/p' "$last"); fi
set -- --config-dir=$agent/etc/kubelet.conf.d --kubeconfig=$agent/kubelet.kubeconfig --node-ip=NODE_IP $arguments
echo "Running kubelet $*"
# The kubelet is inside of k3s, whose process has the name k3s-agent.
cp /usr/bin/kubelet /run/k3s-agent
exec /run/k3s-agent "$@"
END
chmod 755 /usr/local/bin/k3s

cat >/etc/systemd/system/k3s-agent.service <<'END'
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/k3s-agent.service.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=/usr/local/bin/k3s \
    agent \

END
touch /etc/systemd/system/k3s-agent.service.env
chmod 600 /etc/systemd/system/k3s-agent.service.env
systemctl daemon-reload
systemctl enable k3s-agent
systemctl restart k3s-agent
