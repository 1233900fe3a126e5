# SPDX-License-Identifier: MIT
"""The cases of the bench, a file for each family. Adding one is one `add(Case(...))`."""
