//! An embedded Kubernetes API server and a workload simulator
