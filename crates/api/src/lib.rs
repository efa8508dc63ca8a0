//! Kubernetes API types that muster shares with Open Cluster Management
