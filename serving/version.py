"""The version of the services, where they run without the metadata of a distribution: in images."""

VERSION = "0.4.0"
