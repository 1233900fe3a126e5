# SPDX-License-Identifier: MIT
def pytest_addoption(parser):
    parser.addoption("--seconds", type=float, default=120, help="how long to draw graphs")
    parser.addoption("--graphs", type=int, default=10**9, help="how many graphs to draw at most")
    parser.addoption("--calls", type=int, default=10**9, help="how many calls to make at most")
