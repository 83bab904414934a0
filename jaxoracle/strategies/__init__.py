"""The strategies, by name: one line each."""

from __future__ import annotations

from types import MappingProxyType

from jaxoracle.strategies.base import Strategy
from jaxoracle.strategies.channel import Channel
from jaxoracle.strategies.data import Data
from jaxoracle.strategies.data_channel import DataChannel
from jaxoracle.strategies.data_filter import DataFilter
from jaxoracle.strategies.data_pipeline import DataPipeline
from jaxoracle.strategies.data_spatial import DataSpatial
from jaxoracle.strategies.filter import Filter
from jaxoracle.strategies.pipeline import Pipeline
from jaxoracle.strategies.serial import Serial
from jaxoracle.strategies.spatial import Spatial

STRATEGIES: MappingProxyType[str, Strategy] = MappingProxyType(
    {
        strategy.name: strategy
        for strategy in (
            Serial(),
            Data(),
            Spatial(),
            Pipeline(),
            Filter(),
            Channel(),
            DataSpatial(),
            DataPipeline(),
            DataFilter(),
            DataChannel(),
        )
    }
)
